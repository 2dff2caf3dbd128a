/* midge_add_exact_s8_avx2.c - elementwise sum, 32 codes at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_add_lanes.h"

void midge_add_exact_s8_avx2(const midge_strip *strip, const midge_op *op) {
    add_rows(strip, op);
}

MIDGE_TARGET_END

#endif
