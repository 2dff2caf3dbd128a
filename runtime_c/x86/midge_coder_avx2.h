/* midge_coder_avx2.h - float32 to int8 codes, 32 at once. Private.
 *
 * Included before any function, and after midge_x86.h; the file ends with MIDGE_TARGET_END.
 */
#ifndef MIDGE_CODER_AVX2_H
#define MIDGE_CODER_AVX2_H

#include "midge_kernel_f32.h"
#include "midge_target.h"

MIDGE_TARGET_BEGIN("avx2,fma")
#include MIDGE_INTRINSICS

typedef struct midge_rule {
    __m256 scale, low, high;
    __m256i zero_point;
} midge_rule;

/* Eight codes. NaN gives the lowest: the maximum of it and `low` is `low`. */
static inline __m256i midge_coded(__m256 v, const midge_rule *r) {
    v = _mm256_min_ps(_mm256_max_ps(_mm256_div_ps(v, r->scale), r->low), r->high);
    return _mm256_add_epi32(_mm256_cvtps_epi32(v), r->zero_point);
}

static inline __m256i midge_next_8(const uint8_t *x, const midge_rule *r) {
    return midge_coded(_mm256_loadu_ps((const float *)(const void *)x), r);
}

/* Codes 0..31 from the numbers at x. */
static inline __m256i midge_next_32(const uint8_t *x, const midge_rule *r) {
    const __m256i a = _mm256_packs_epi32(midge_next_8(x, r), midge_next_8(x + 32, r));
    const __m256i b = _mm256_packs_epi32(midge_next_8(x + 64, r), midge_next_8(x + 96, r));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
}

/* y[i] = clamp(rint(x[i] / scale) + zero_point). y may begin where x does: what is written has been
 * read. */
static inline void midge_encode(int8_t *y, const uint8_t *x, size_t count, float scale,
                                int32_t zero_point) {
    size_t i = 0;
    midge_rule r;
    r.scale = _mm256_set1_ps(scale);
    r.low = _mm256_set1_ps((float)(-128 - zero_point));
    r.high = _mm256_set1_ps((float)(127 - zero_point));
    r.zero_point = _mm256_set1_epi32(zero_point);
    for (; i + 32 <= count; i += 32) {
        const __m256i codes = midge_next_32(x + 4 * i, &r);
        _mm256_storeu_si256((__m256i *)(void *)(y + i), codes);
    }
    for (; i < count; ++i) {
        float v;
        memcpy(&v, x + 4 * i, sizeof v);
        const __m256i code = midge_coded(_mm256_set1_ps(v), &r);
        y[i] = (int8_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(code));
    }
}

#endif
