/* midge_mul_s8.c - elementwise product, axes of size 1 repeated. */
#include "midge_kernel.h"

/* What does not change from one row to the next. */
typedef struct product {
    size_t a_step, b_step, count;
    int32_t a_zero_point, b_zero_point;
    uint32_t m;
    midge_requant limits;
} product;

/* y[i] = requantize((a[i * a_step] - a_zero_point) * (b[i * b_step] - b_zero_point)) */
static void multiply_row(const product *p, int8_t *y, const int8_t *a, const int8_t *b) {
    for (size_t i = 0; i < p->count; ++i) {
        const int32_t u = a[i * p->a_step] - p->a_zero_point;
        const int32_t v = b[i * p->b_step] - p->b_zero_point;
        y[i] = midge_requantize(u * v, p->m, &p->limits);
    }
}

/* y may lie where an operand of its shape does. */
void midge_mul_s8(const midge_strip *strip, const midge_op *op) {
    const uint32_t *data = strip->data + op->word[MIDGE_OP_DATA];
    const uint32_t *shape = &op->word[MIDGE_MUL_SHAPE];
    const uint32_t *a_pitch = &op->word[MIDGE_MUL_A_PITCH];
    const uint32_t *b_pitch = &op->word[MIDGE_MUL_B_PITCH];
    const int8_t *a = midge_codes_at(strip, op, MIDGE_OP_X);
    const int8_t *b = data[MIDGE_MUL_CONSTANT] ? (const int8_t *)(data + MIDGE_MUL_DATA_WORDS)
                                               : midge_codes_at(strip, op, MIDGE_MUL_B);
    int8_t *y = midge_codes_at(strip, op, MIDGE_OP_Y);
    product p;
    p.a_step = (size_t)midge_low(op->word[MIDGE_MUL_STEP]);
    p.b_step = (size_t)midge_high(op->word[MIDGE_MUL_STEP]);
    p.count = shape[3];
    p.a_zero_point = midge_code(data[MIDGE_MUL_CODES], 0);
    p.b_zero_point = midge_signed(data[MIDGE_MUL_B_ZERO_POINT]);
    p.m = data[MIDGE_MUL_MULTIPLIER];
    p.limits = midge_requant_limits(data[MIDGE_MUL_CODES]);

    for (size_t i = 0; i < shape[0]; ++i)
        for (size_t j = 0; j < shape[1]; ++j)
            for (size_t k = 0; k < shape[2]; ++k, y += p.count)
                multiply_row(&p, y, a + (i * a_pitch[0] + j * a_pitch[1] + k * a_pitch[2]),
                             b + (i * b_pitch[0] + j * b_pitch[1] + k * b_pitch[2]));
}
