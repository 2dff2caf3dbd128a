/* midge_resample_f32.c - weighted sums of slices of X along its middle axis: Resize. */
#include "midge_kernel_f32.h"
#include "midge_model_general.h"

void midge_resample_f32(const midge_strip *strip, const midge_op *op) {
    const size_t from = op->word[MIDGE_PICK_FROM], inner = op->word[MIDGE_PICK_INNER];
    const size_t count = op->word[MIDGE_PICK_COUNT], taps = op->word[MIDGE_PICK_TAPS];
    const uint32_t *index = strip->data + op->word[MIDGE_OP_DATA];
    const midge_real *weight =
        midge_constants(strip, op->word[MIDGE_OP_DATA] + (uint32_t)(count * taps));
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    midge_real *y = midge_reals_at(strip, op, MIDGE_OP_Y);
    for (uint32_t n = op->word[MIDGE_PICK_OUTER]; n > 0; --n, x += from * inner)
        for (size_t i = 0; i < count; ++i, y += inner)
            for (size_t k = 0; k < inner; ++k) {
                float sum = 0.0f;
                for (size_t t = i * taps; t < (i + 1) * taps; ++t)
                    sum += x[index[t] * inner + k] * weight[t];
                y[k] = sum;
            }
}
