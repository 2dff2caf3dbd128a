/* midge_avx2.h - what the vector kernels of convolutions and products share. Private.
 *
 * Included before any function, and after MIDGE_FEATURES where more than AVX2 is meant; the file
 * ends with MIDGE_TARGET_END.
 */
#ifndef MIDGE_AVX2_H
#define MIDGE_AVX2_H

#include "midge_kernel.h"
#include "midge_target.h"

#ifndef MIDGE_FEATURES
#define MIDGE_FEATURES "avx2,fma"
#endif

MIDGE_TARGET_BEGIN(MIDGE_FEATURES)
#include MIDGE_INTRINSICS

#define MIDGE_PANEL 16 /* channels whose weights lie together */

/* Rounds and bounds one vector of accumulators: rint(f32(acc) * m), at most high. What lies below
 * `low` still does: packing saturates it, and the caller takes the maximum of codes. */
static inline __m256i midge_scale_avx2(__m256i acc, __m256 m, __m256 high) {
    const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(acc), m);
    return _mm256_cvtps_epi32(_mm256_min_ps(product, high));
}

/* Codes of a panel from its sums. */
static inline __m128i midge_requantize_panel(__m256i low, __m256i high, const uint32_t *bias,
                                             const uint32_t *m, const midge_requant *limits) {
    const __m256 top = _mm256_set1_ps((float)limits->high);
    const __m256i *b = (const __m256i *)(const void *)bias;
    const float *scale = (const float *)(const void *)m;
    low = _mm256_add_epi32(low, _mm256_loadu_si256(b));
    high = _mm256_add_epi32(high, _mm256_loadu_si256(b + 1));
    low = midge_scale_avx2(low, _mm256_loadu_ps(scale), top);
    high = midge_scale_avx2(high, _mm256_loadu_ps(scale + 8), top);
    /* Packing works in halves: channels 0..3 8..11, then 4..7 12..15. */
    const __m256i v = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
    const __m256i sum = _mm256_adds_epi16(v, _mm256_set1_epi16((int16_t)limits->zero_point));
    const __m128i codes =
        _mm_packs_epi16(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return _mm_max_epi8(codes, _mm_set1_epi8((int8_t)(limits->zero_point + (int32_t)limits->low)));
}

/* Stores the first `count` codes of a panel. */
static inline void midge_store_panel(int8_t *y, __m128i codes, size_t count) {
    if (count >= MIDGE_PANEL) {
        _mm_storeu_si128((__m128i *)(void *)y, codes);
        return;
    }
    int8_t all[MIDGE_PANEL];
    _mm_storeu_si128((__m128i *)(void *)all, codes);
    memcpy(y, all, count);
}

/* Four neighbours as a word; those behind the last are 0. */
static inline int32_t midge_quad(const int8_t *x, size_t left) {
    int32_t word = 0;
    if (left >= 4)
        memcpy(&word, x, 4);
    else
        memcpy(&word, x, left);
    return word;
}

/* The sum of |x| where x is negative. */
static inline int32_t midge_sum_negative(const int8_t *x, size_t depth) {
    const __m128i zero = _mm_setzero_si128();
    __m128i sum = zero;
    size_t k = 0;
    for (; k + 16 <= depth; k += 16) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(x + k));
        const __m128i negative = _mm_and_si128(_mm_abs_epi8(v), _mm_cmpgt_epi8(zero, v));
        sum = _mm_add_epi64(sum, _mm_sad_epu8(negative, zero));
    }
    int32_t total = _mm_cvtsi128_si32(_mm_add_epi64(sum, _mm_srli_si128(sum, 8)));
    for (; k < depth; ++k)
        total -= x[k] < 0 ? x[k] : 0;
    return total;
}

/* The sum of x. */
static inline int32_t midge_sum_codes(const int8_t *x, size_t depth) {
    const __m128i sign = _mm_set1_epi8(-128), zero = _mm_setzero_si128();
    __m128i sum = zero;
    size_t k = 0;
    for (; k + 16 <= depth; k += 16) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(x + k));
        sum = _mm_add_epi64(sum, _mm_sad_epu8(_mm_xor_si128(v, sign), zero));
    }
    int32_t total = _mm_cvtsi128_si32(_mm_add_epi64(sum, _mm_srli_si128(sum, 8)));
    total -= 128 * (int32_t)k;
    for (; k < depth; ++k)
        total += x[k];
    return total;
}

/* What is added to the sums of every channel: sum(|x|) where x is negative, for weights that are
 * then turned over, less the zero point of the weights times sum(x). */
static inline int32_t midge_sum_start(const int8_t *x, size_t depth, uint32_t w_zero_point) {
    const int32_t negative = midge_sum_negative(x, depth);
    return w_zero_point ? negative - midge_signed(w_zero_point) * midge_sum_codes(x, depth)
                        : negative;
}

#endif
