/* midge_conv2d_f32_s8_avx2.c - float32 convolution with int8 weights: 16 channels of 6 pixels at
 * once. */
#include "midge_x86.h"

#if MIDGE_X86

#define MIDGE_FLOATS 8
#include "midge_patch_f32.h"

void midge_conv2d_f32_s8_avx2(const midge_strip *strip, const midge_op *op) {
    midge_conv_strip(strip, op, 1);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
