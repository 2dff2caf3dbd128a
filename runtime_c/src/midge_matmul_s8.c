/* midge_matmul_s8.c - product of two activations, whose matrices lie in any order. */
#include "midge_kernel.h"

#define LANES 8 /* columns that accumulate side by side */

/* Bytes between neighbours of a matrix, and from one matrix to the next. */
typedef struct matrix {
    size_t batch, row, column;
    int32_t zero_point;
} matrix;

static matrix matrix_at(const uint32_t *pitch, int32_t zero_point) {
    matrix m;
    m.batch = pitch[0];
    m.row = pitch[1];
    m.column = pitch[2];
    m.zero_point = zero_point;
    return m;
}

/* The sum of one element of Y. */
static int32_t dot(const int8_t *a, const int8_t *b, size_t depth, const matrix *ma,
                   const matrix *mb) {
    int32_t acc = 0;
    if (ma->column == 1 && mb->row == 1) {
        for (size_t k = 0; k < depth; ++k)
            acc += (a[k] - ma->zero_point) * (b[k] - mb->zero_point);
        return acc;
    }
    for (size_t k = 0; k < depth; ++k)
        acc += (a[k * ma->column] - ma->zero_point) * (b[k * mb->row] - mb->zero_point);
    return acc;
}

/* The sums of LANES neighbours of a row of Y, where rows of B are contiguous. */
static void sum_lanes(int32_t *acc, const int8_t *a, const int8_t *b, size_t depth,
                      const matrix *ma, const matrix *mb) {
    for (size_t i = 0; i < LANES; ++i)
        acc[i] = 0;
    for (size_t k = 0; k < depth; ++k, b += mb->row) {
        const int32_t v = a[k * ma->column] - ma->zero_point;
        for (size_t i = 0; i < LANES; ++i)
            acc[i] += v * (b[i] - mb->zero_point);
    }
}

void midge_matmul_s8(const midge_strip *strip, const midge_op *op) {
    const uint32_t *data = strip->data + op->word[MIDGE_OP_DATA];
    const uint32_t *y_pitch = data + MIDGE_MATMUL_S8_Y_PITCH;
    const size_t rows = op->word[MIDGE_MATMUL_S8_ROWS], depth = op->word[MIDGE_MATMUL_S8_DEPTH];
    const size_t columns = op->word[MIDGE_MATMUL_S8_COLUMNS];
    const uint32_t m = data[MIDGE_MATMUL_S8_MULTIPLIER];
    const uint32_t codes = data[MIDGE_MATMUL_S8_CODES];
    const midge_requant limits = midge_requant_limits(codes);
    const matrix ma = matrix_at(data + MIDGE_MATMUL_S8_A_PITCH, midge_code(codes, 0));
    const matrix mb =
        matrix_at(data + MIDGE_MATMUL_S8_B_PITCH, midge_signed(data[MIDGE_MATMUL_S8_B_ZERO_POINT]));

    for (uint32_t n = strip->first; n < strip->last; ++n) {
        const int8_t *a = midge_codes_at(strip, op, MIDGE_OP_X) + n * ma.batch;
        const int8_t *b = midge_codes_at(strip, op, MIDGE_MATMUL_S8_B) + n * mb.batch;
        int8_t *y = midge_codes_at(strip, op, MIDGE_OP_Y) + n * y_pitch[0];
        for (size_t row = 0; row < rows; ++row, a += ma.row, y += y_pitch[1]) {
            size_t c = 0;
            for (; mb.column == 1 && c + LANES <= columns; c += LANES) {
                int32_t acc[LANES];
                sum_lanes(acc, a, b + c, depth, &ma, &mb);
                for (size_t i = 0; i < LANES; ++i)
                    y[c + i] = midge_requantize(acc[i], m, &limits);
            }
            for (; c < columns; ++c)
                y[c] = midge_requantize(dot(a, b + c * mb.column, depth, &ma, &mb), m, &limits);
        }
    }
}
