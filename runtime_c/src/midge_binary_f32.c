/* midge_binary_f32.c - y = a op b, element by element, axes of size 1 repeated.
 *
 * One rounding an element: the same bits on every core. y may lie where a or b does.
 */
#include "midge_kernel_f32.h"

#define ROW(name, expression)                                                                      \
    static void name##_row(midge_real *y, const midge_real *a, size_t a_step, const midge_real *b, \
                           size_t b_step, size_t count) {                                          \
        for (size_t i = 0; i < count; ++i) {                                                       \
            const float u = a[i * a_step], v = b[i * b_step];                                      \
            y[i] = midge_as_float(expression);                                                     \
        }                                                                                          \
    }

ROW(add, u + v)
ROW(sub, u - v)
ROW(mul, u *v)
ROW(div, u / v)
ROW(max, u >= v || u != u ? u : v) /* NaN where either is */
ROW(min, u <= v || u != u ? u : v)
ROW(prelu, u < 0.0f ? u * v : u)

static midge_row_function row_of(uint32_t kind) {
    switch (kind) {
    case MIDGE_BINARY_ADD:
        return add_row;
    case MIDGE_BINARY_SUB:
        return sub_row;
    case MIDGE_BINARY_MUL:
        return mul_row;
    case MIDGE_BINARY_DIV:
        return div_row;
    case MIDGE_BINARY_MAX:
        return max_row;
    case MIDGE_BINARY_MIN:
        return min_row;
    default:
        return prelu_row;
    }
}

void midge_binary_f32(const midge_strip *strip, const midge_op *op) {
    midge_each_row(strip, op, row_of(op->word[MIDGE_BINARY_KIND] & 0xFFFFu));
}
