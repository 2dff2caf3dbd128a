/* midge_depthwise_conv2d_s8_avx512vnni.c - one group per input channel, 16 channels at once. */
#include "midge_x86.h"

#if MIDGE_X86

#define MIDGE_FEATURES "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
#include "midge_avx2.h"

#include "midge_depthwise_zmm.h"
#include "midge_depthwise_rows.h"
#include "midge_depthwise_narrow.h"

void midge_depthwise_conv2d_s8_avx512vnni(const midge_strip *strip, const midge_op *op) {
    depthwise_rows(strip, op, 0, midge_depthwise_conv2d_s8);
}

MIDGE_TARGET_END

#endif
