/* midge_vnni.h - one source for AVX512-VNNI and AVX-VNNI. Private.
 *
 * A file includes it after MIDGE_LANES: 16 channels in 512 bits, or 8 in 256. The kernels hold two
 * such vectors a pixel: two panels, or the halves of one.
 */
#ifndef MIDGE_VNNI_H
#define MIDGE_VNNI_H

#if MIDGE_LANES == 16
#define MIDGE_FEATURES "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
#else
#define MIDGE_FEATURES "avx2,fma,avxvnni"
#endif
#include "midge_avx2.h"

#if MIDGE_LANES == 16

typedef __m512i midge_lanes;

static inline midge_lanes midge_same(int32_t value) {
    return _mm512_set1_epi32(value);
}

static inline midge_lanes midge_weights(const int8_t *w) {
    return _mm512_loadu_si512(w);
}

static inline midge_lanes midge_plus(midge_lanes a, midge_lanes b) {
    return _mm512_add_epi32(a, b);
}

/* w as the product with x asks for: as it is, or where x is negative all bits turned over. */
static inline midge_lanes midge_flipped(midge_lanes w, midge_lanes x) {
    return _mm512_xor_si512(w, _mm512_movm_epi8(_mm512_movepi8_mask(x)));
}

static inline midge_lanes midge_size(midge_lanes x) {
    return _mm512_abs_epi8(x);
}

/* acc[c] += sum(x * w) of four neighbours; x is unsigned. */
static inline midge_lanes midge_dot(midge_lanes acc, midge_lanes x, midge_lanes w) {
    return _mm512_dpbusd_epi32(acc, x, w);
}

/* Stores the codes of the first `count` channels of a vector of sums. */
static inline void midge_store_lanes(int8_t *y, midge_lanes sum, size_t count, const uint32_t *bias,
                                     const uint32_t *m, const midge_requant *limits) {
    const __m512i acc = _mm512_add_epi32(sum, _mm512_loadu_si512(bias));
    const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(acc), _mm512_loadu_ps(m));
    const __m512 high = _mm512_set1_ps((float)limits->high);
    __m512i v = _mm512_cvtps_epi32(_mm512_min_ps(product, high));
    v = _mm512_max_epi32(v, _mm512_set1_epi32((int32_t)limits->low));
    v = _mm512_add_epi32(v, _mm512_set1_epi32(limits->zero_point));
    midge_store_panel(y, _mm512_cvtepi32_epi8(v), count);
}

/* Whether two vectors fit the channels from one to `last`; how many those are. */
static inline size_t midge_group(size_t left) {
    return left >= 2 * MIDGE_PANEL ? 2 * MIDGE_PANEL : MIDGE_PANEL;
}

/* From the weights of the first vector to those of the second. */
static inline size_t midge_second(size_t depth) {
    return MIDGE_PANEL * depth;
}

/* Stores up to `left` channels of the two vectors of a group, or of its only one. */
static inline void midge_store_group(int8_t *y, midge_lanes a, midge_lanes b, size_t left,
                                     const uint32_t *bias, const uint32_t *m,
                                     const midge_requant *limits) {
    midge_store_lanes(y, a, left, bias, m, limits);
    if (left >= 2 * MIDGE_PANEL)
        midge_store_lanes(y + MIDGE_PANEL, b, MIDGE_PANEL, bias + MIDGE_PANEL, m + MIDGE_PANEL,
                          limits);
}

#else

typedef __m256i midge_lanes;

static inline midge_lanes midge_same(int32_t value) {
    return _mm256_set1_epi32(value);
}

static inline midge_lanes midge_weights(const int8_t *w) {
    return _mm256_loadu_si256((const __m256i *)(const void *)w);
}

static inline midge_lanes midge_plus(midge_lanes a, midge_lanes b) {
    return _mm256_add_epi32(a, b);
}

static inline midge_lanes midge_flipped(midge_lanes w, midge_lanes x) {
    return _mm256_xor_si256(w, _mm256_cmpgt_epi8(_mm256_setzero_si256(), x));
}

static inline midge_lanes midge_size(midge_lanes x) {
    return _mm256_abs_epi8(x);
}

static inline midge_lanes midge_dot(midge_lanes acc, midge_lanes x, midge_lanes w) {
    return _mm256_dpbusd_avx_epi32(acc, x, w);
}

static inline size_t midge_group(size_t left) {
    return left > MIDGE_PANEL / 2 ? MIDGE_PANEL : MIDGE_PANEL / 2;
}

static inline size_t midge_second(size_t depth) {
    (void)depth;
    return 32;
}

static inline void midge_store_group(int8_t *y, midge_lanes a, midge_lanes b, size_t left,
                                     const uint32_t *bias, const uint32_t *m,
                                     const midge_requant *limits) {
    midge_store_panel(y, midge_requantize_panel(a, b, bias, m, limits), left);
}

#endif

/* Four neighbours, as often as there are channels. */
static inline midge_lanes midge_four(const uint8_t *from) {
    int32_t word;
    memcpy(&word, from, 4);
    return midge_same(word);
}

#endif
