/* midge_depthwise_conv2d_s8_avx2.c - one group per input channel, 16 channels at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_avx2.h"

static inline __m256i multiply_add(__m256i acc, __m256i x, __m256i w) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(x, w));
}

#include "midge_depthwise_ymm.h"
#include "midge_depthwise_rows.h"
#include "midge_depthwise_narrow.h"

void midge_depthwise_conv2d_s8_avx2(const midge_strip *strip, const midge_op *op) {
    depthwise_rows(strip, op, 0, midge_depthwise_conv2d_s8);
}

MIDGE_TARGET_END

#endif
