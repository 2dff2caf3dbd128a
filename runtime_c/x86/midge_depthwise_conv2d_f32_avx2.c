/* midge_depthwise_conv2d_f32_avx2.c - one group per input channel: 8 channels at once. */
#include "midge_x86.h"

#if MIDGE_X86

#define MIDGE_FLOATS 8
#include "midge_depthwise_f32.h"

void midge_depthwise_conv2d_f32_avx2(const midge_strip *strip, const midge_op *op) {
    if (!midge_depthwise_rows(strip, op)) /* several channels are made from one */
        midge_depthwise_conv2d_f32(strip, op);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
