/* midge_pad_f32.c - puts a constant border around a float tensor of up to five merged axes. */
#include "midge_kernel_f32.h"

void midge_pad_f32(const midge_strip *strip, const midge_op *op) {
    const uint32_t *shape = &op->word[MIDGE_PAD_SHAPE], *pitch = &op->word[MIDGE_PAD_PITCH];
    const float value = midge_float(op->word[MIDGE_PAD_VALUE]);
    const uint8_t *x = strip->arena + op->word[MIDGE_OP_X];
    uint8_t *y = strip->arena + op->word[MIDGE_OP_Y];
    midge_real *border = midge_reals_at(strip, op, MIDGE_OP_Y);
    const size_t run = shape[4], count = op->word[MIDGE_PAD_BYTES] / sizeof value;
    for (size_t i = 0; i < count; ++i)
        border[i] = value;
    y += op->word[MIDGE_PAD_START];
    for (size_t a = 0; a < shape[0]; ++a)
        for (size_t b = 0; b < shape[1]; ++b)
            for (size_t c = 0; c < shape[2]; ++c)
                for (size_t d = 0; d < shape[3]; ++d, x += run)
                    memcpy(y + a * pitch[0] + b * pitch[1] + c * pitch[2] + d * pitch[3], x, run);
}
