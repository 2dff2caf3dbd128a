/* midge_conv2d_asymmetric_s8_avx2.c - convolution by weights that have a zero point of their own.
 *
 * With one group per input channel 16 channels at once, with other groups as the portable one;
 * those without groups lie in panels for other kernels.
 */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_avx2.h"

static inline __m256i multiply_add(__m256i acc, __m256i x, __m256i w) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(x, w));
}

#include "midge_depthwise_ymm.h"
#include "midge_depthwise_rows.h"
#include "midge_depthwise_narrow.h"

void midge_conv2d_asymmetric_s8_avx2(const midge_strip *strip, const midge_op *op) {
    const int32_t channels = midge_low(op->word[MIDGE_CONV_CHANNELS]);
    if (midge_high(op->word[MIDGE_CONV_GROUPS]) == channels)
        depthwise_rows(strip, op, midge_signed(op->word[MIDGE_CONV_W_ZERO_POINT]),
                       midge_conv2d_asymmetric_s8);
    else
        midge_conv2d_asymmetric_s8(strip, op);
}

MIDGE_TARGET_END

#endif
