/* midge_pad.c - puts a constant border around a tensor of up to five merged axes. */
#include "midge_kernel.h"

void midge_pad(const midge_strip *strip, const midge_op *op) {
    const uint32_t *shape = &op->word[MIDGE_PAD_SHAPE], *pitch = &op->word[MIDGE_PAD_PITCH];
    const uint8_t *x = strip->arena + op->word[MIDGE_OP_X];
    uint8_t *y = strip->arena + op->word[MIDGE_OP_Y];
    const size_t run = shape[4];
    memset(y, (int)op->word[MIDGE_PAD_VALUE], op->word[MIDGE_PAD_BYTES]);
    y += op->word[MIDGE_PAD_START];
    for (size_t a = 0; a < shape[0]; ++a)
        for (size_t b = 0; b < shape[1]; ++b)
            for (size_t c = 0; c < shape[2]; ++c)
                for (size_t d = 0; d < shape[3]; ++d, x += run)
                    memcpy(y + a * pitch[0] + b * pitch[1] + c * pitch[2] + d * pitch[3], x, run);
}
