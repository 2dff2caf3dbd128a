/* midge_avx2.h - what the AVX2 kernels of convolutions and products share. Private.
 *
 * Included before any function; the file ends with MIDGE_TARGET_END.
 */
#ifndef MIDGE_AVX2_H
#define MIDGE_AVX2_H

#include "midge_kernel.h"
#include "midge_target.h"

MIDGE_TARGET_BEGIN("avx2,fma")
#include MIDGE_INTRINSICS

/* Rounds and bounds one vector of accumulators: rint(f32(acc) * m), at most high. What lies below
 * `low` still does: packing saturates it, and the caller takes the maximum of codes. */
static inline __m256i midge_scale_avx2(__m256i acc, __m256 m, __m256 high) {
    const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(acc), m);
    return _mm256_cvtps_epi32(_mm256_min_ps(product, high));
}

#endif
