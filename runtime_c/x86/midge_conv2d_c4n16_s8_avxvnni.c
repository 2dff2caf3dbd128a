/* midge_conv2d_c4n16_s8_avxvnni.c - 2-D convolution with one group, 16 channels of 6 pixels at
 * once. */
#include "midge_x86.h"

#if MIDGE_X86

#define MIDGE_LANES 8
#include "midge_vnni.h"
#include "midge_conv_vnni.h"

void midge_conv2d_c4n16_s8_avxvnni(const midge_strip *strip, const midge_op *op) {
    midge_vector_conv(strip, op);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
