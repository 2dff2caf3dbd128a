/* midge_matmul_f32.c - Y [batch, rows, columns] = A [rows, depth] times B [depth, columns]. */
#include "midge_kernel_f32.h"

#define LANES 8 /* columns that accumulate side by side */

/* Columns 0..count - 1 of one row; b and y begin at the first. */
static inline void sum_columns(midge_real *y, const midge_real *a, const midge_real *b,
                               size_t depth, size_t pitch, size_t count) {
    float acc[LANES] = {0};
    for (size_t k = 0; k < depth; ++k, b += pitch) {
        const float v = a[k];
        if (count == LANES) {
            for (size_t i = 0; i < LANES; ++i)
                acc[i] += v * b[i];
        } else {
            for (size_t i = 0; i < count; ++i)
                acc[i] += v * b[i];
        }
    }
    for (size_t i = 0; i < count; ++i)
        y[i] = acc[i];
}

void midge_matmul_f32(const midge_strip *strip, const midge_op *op) {
    const size_t rows = op->word[MIDGE_MATMUL_ROWS], depth = op->word[MIDGE_MATMUL_DEPTH];
    const size_t columns = op->word[MIDGE_MATMUL_COLUMNS];
    const midge_real *a = midge_reals_at(strip, op, MIDGE_OP_X);
    const midge_real *b = midge_reals_at(strip, op, MIDGE_MATMUL_B);
    midge_real *y = midge_reals_at(strip, op, MIDGE_OP_Y);
    for (uint32_t n = op->word[MIDGE_MATMUL_BATCH]; n > 0; --n) {
        for (size_t row = 0; row < rows; ++row, y += columns)
            for (size_t c = 0; c < columns; c += LANES)
                sum_columns(y + c, a + row * depth, b + c, depth, columns,
                            columns - c < LANES ? columns - c : LANES);
        a += op->word[MIDGE_MATMUL_A_PITCH];
        b += op->word[MIDGE_MATMUL_B_PITCH];
    }
}
