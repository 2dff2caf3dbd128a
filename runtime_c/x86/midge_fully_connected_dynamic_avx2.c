/* midge_fully_connected_dynamic_avx2.c - int8 matrix product of codes quantized at run time. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_dot4_avx2.h"

void midge_fully_connected_dynamic_avx2(const midge_strip *strip, const midge_op *op) {
    midge_dynamic_product(strip, op, midge_dot4_avx2);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
