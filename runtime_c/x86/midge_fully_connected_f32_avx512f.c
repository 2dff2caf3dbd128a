/* midge_fully_connected_f32_avx512f.c - float32 matrix product: 32 channels of 10 pixels at once.
 * */
#include "midge_x86.h"

#if MIDGE_X86

#define MIDGE_FLOATS 16
#include "midge_tile_f32.h"

void midge_fully_connected_f32_avx512f(const midge_strip *strip, const midge_op *op) {
    midge_product_rows(strip, op, 0);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
