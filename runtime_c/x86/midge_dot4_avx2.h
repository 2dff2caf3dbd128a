/* midge_dot4_avx2.h - products of codes by the weights of four channels, 16 at once. Private.
 *
 * Included before any function, and after midge_x86.h; the file ends with MIDGE_TARGET_END.
 */
#ifndef MIDGE_DOT4_AVX2_H
#define MIDGE_DOT4_AVX2_H

#include "midge_dynamic.h"
#include "midge_target.h"

MIDGE_TARGET_BEGIN("avx2,fma")
#include MIDGE_INTRINSICS

static inline __m256i midge_16_codes(const int8_t *from) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)from));
}

/* The same as midge_dot4_s8: codes less their zero point need 9 bits, so pairs of products fit. */
static inline void midge_dot4_avx2(midge_dot4 *dot, const int8_t *x, size_t offset, size_t count,
                                   int32_t x_zero_point) {
    const __m256i zero_point = _mm256_set1_epi16((int16_t)x_zero_point);
    __m256i sum[4];
    size_t i = 0;
    for (int j = 0; j < 4; ++j)
        sum[j] = _mm256_setzero_si256();
    for (; i + 16 <= count; i += 16) {
        const __m256i v = _mm256_sub_epi16(midge_16_codes(x + i), zero_point);
        for (int j = 0; j < 4; ++j) {
            const __m256i w = midge_16_codes(dot->w[j] + offset + i);
            sum[j] = _mm256_add_epi32(sum[j], _mm256_madd_epi16(v, w));
        }
    }
    if (i != 0) {
        const __m256i low = _mm256_hadd_epi32(sum[0], sum[1]);
        const __m256i all = _mm256_hadd_epi32(low, _mm256_hadd_epi32(sum[2], sum[3]));
        const __m128i four =
            _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
        __m128i *acc = (__m128i *)(void *)dot->acc;
        _mm_storeu_si128(acc, _mm_add_epi32(_mm_loadu_si128(acc), four));
    }
    if (i != count)
        midge_dot4_s8(dot, x + i, offset + i, count - i, x_zero_point);
}

#endif
