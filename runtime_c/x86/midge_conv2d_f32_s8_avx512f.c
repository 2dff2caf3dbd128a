/* midge_conv2d_f32_s8_avx512f.c - float32 convolution with int8 weights: 32 channels of 10 pixels
 * at once. */
#include "midge_x86.h"

#if MIDGE_X86

#define MIDGE_FLOATS 16
#include "midge_patch_f32.h"

void midge_conv2d_f32_s8_avx512f(const midge_strip *strip, const midge_op *op) {
    midge_conv_strip(strip, op, 1);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
