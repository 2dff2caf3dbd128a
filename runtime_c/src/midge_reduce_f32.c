/* midge_reduce_f32.c - sum, mean, max, min or product over the middle axis of X. */
#include "midge_kernel_f32.h"

static inline float merged(uint32_t kind, float sum, float v) {
    switch (kind) {
    case MIDGE_REDUCE_MAX:
        return v > sum ? v : sum;
    case MIDGE_REDUCE_MIN:
        return v < sum ? v : sum;
    case MIDGE_REDUCE_PROD:
        return sum * v;
    default:
        return sum + v;
    }
}

void midge_reduce_f32(const midge_strip *strip, const midge_op *op) {
    const size_t count = op->word[MIDGE_REDUCE_COUNT], inner = op->word[MIDGE_REDUCE_INNER];
    const uint32_t kind = op->word[MIDGE_REDUCE_KIND];
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    midge_real *y = midge_reals_at(strip, op, MIDGE_OP_Y);
    for (uint32_t n = op->word[MIDGE_REDUCE_OUTER]; n > 0; --n, y += inner) {
        for (size_t i = 0; i < inner; ++i)
            y[i] = x[i];
        x += inner;
        for (size_t k = 1; k < count; ++k, x += inner)
            for (size_t i = 0; i < inner; ++i)
                y[i] = merged(kind, y[i], x[i]);
        if (kind == MIDGE_REDUCE_MEAN)
            for (size_t i = 0; i < inner; ++i)
                y[i] /= (float)count;
    }
}
