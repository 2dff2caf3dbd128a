/* midge_mod_f32.c - remainder of a by b, element by element, axes of size 1 repeated.
 *
 * fmodf is exact, and a remainder with the sign of b rounds once: the same bits on every core.
 */
#include <math.h>

#include "midge_kernel_f32.h"

/* With the sign of a. */
static void fmod_row(midge_real *y, const midge_real *a, size_t a_step, const midge_real *b,
                     size_t b_step, size_t count) {
    for (size_t i = 0; i < count; ++i)
        y[i] = fmodf(a[i * a_step], b[i * b_step]);
}

/* With the sign of b, also where it is 0. */
static void mod_row(midge_real *y, const midge_real *a, size_t a_step, const midge_real *b,
                    size_t b_step, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const float divisor = b[i * b_step], r = fmodf(a[i * a_step], divisor);
        const float moved = (r < 0.0f) != (divisor < 0.0f) ? r + divisor : r;
        y[i] = r < 0.0f || r > 0.0f || r != r ? moved : copysignf(0.0f, divisor);
    }
}

void midge_mod_f32(const midge_strip *strip, const midge_op *op) {
    const uint32_t kind = op->word[MIDGE_BINARY_KIND] & 0xFFFFu;
    midge_each_row(strip, op, kind == MIDGE_BINARY_FMOD ? fmod_row : mod_row);
}
