/* midge_fully_connected_c4n16_s8_avx512vnni.c - one vector times a matrix, 32 channels at once. */
#include "midge_x86.h"

#if MIDGE_X86

#define MIDGE_LANES 16
#include "midge_vnni.h"
#include "midge_fully_connected_vnni.h"

void midge_fully_connected_c4n16_s8_avx512vnni(const midge_strip *strip, const midge_op *op) {
    midge_fully_connected_vnni(strip, op);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
