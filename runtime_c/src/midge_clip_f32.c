/* midge_clip_f32.c - Relu and Clip: min(max(x, low), high). */
#include "midge_kernel_f32.h"

/* x and y may be the same. */
void midge_clip_f32(const midge_strip *strip, const midge_op *op) {
    const midge_limits limits = midge_read_limits(op);
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    midge_real *y = midge_reals_at(strip, op, MIDGE_OP_Y);
    const size_t count = op->word[MIDGE_MAP_COUNT];
    for (size_t i = 0; i < count; ++i)
        y[i] = midge_limit(x[i], &limits);
}
