/* midge_softmax_f32.c - softmax over the last axis, or its logarithm. */
#include <math.h>

#include "midge_kernel_f32.h"

/* x and y may be the same. */
void midge_softmax_f32(const midge_strip *strip, const midge_op *op) {
    const size_t depth = op->word[MIDGE_SOFTMAX_DEPTH];
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    midge_real *y = midge_reals_at(strip, op, MIDGE_OP_Y);
    for (uint32_t row = op->word[MIDGE_SOFTMAX_ROWS]; row > 0; --row, x += depth, y += depth) {
        float max = x[0], sum = 0.0f;
        for (size_t i = 1; i < depth; ++i)
            max = x[i] > max ? x[i] : max;
        for (size_t i = 0; i < depth; ++i) {
            const float d = x[i] - max, e = expf(d);
            sum += e;
            y[i] = op->word[MIDGE_SOFTMAX_LOG] ? d : e;
        }
        const float log_sum = op->word[MIDGE_SOFTMAX_LOG] ? logf(sum) : 0.0f;
        for (size_t i = 0; i < depth; ++i)
            y[i] = op->word[MIDGE_SOFTMAX_LOG] ? y[i] - log_sum : y[i] / sum;
    }
}
