/* midge_pow_f32.c - y = a to the power of b, element by element, axes of size 1 repeated. */
#include <math.h>

#include "midge_kernel_f32.h"

static void pow_row(midge_real *y, const midge_real *a, size_t a_step, const midge_real *b,
                    size_t b_step, size_t count) {
    for (size_t i = 0; i < count; ++i)
        y[i] = powf(a[i * a_step], b[i * b_step]);
}

void midge_pow_f32(const midge_strip *strip, const midge_op *op) {
    midge_each_row(strip, op, pow_row);
}
