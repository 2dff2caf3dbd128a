/* midge_copy.c - gathers elements of a tensor of up to six axes: transpose and slice. */
#include "midge_kernel.h"

/* Byte offset of a position along axis i; negative where a slice steps backwards. */
static inline ptrdiff_t along(const midge_op *op, size_t i, uint32_t position) {
    return (ptrdiff_t)midge_signed(op->word[MIDGE_COPY_PITCH + i]) * (ptrdiff_t)position;
}

/* Copies `count` elements of `item` bytes, `pitch` bytes apart in x and adjacent in y. */
static void copy_run(uint8_t *y, const uint8_t *x, size_t count, ptrdiff_t pitch, size_t item) {
    if (pitch == (ptrdiff_t)item) {
        memcpy(y, x, count * item);
    } else if (item == 1) {
        for (size_t i = 0; i < count; ++i)
            y[i] = x[(ptrdiff_t)i * pitch];
    } else {
        for (size_t i = 0; i < count; ++i)
            memcpy(y + i * item, x + (ptrdiff_t)i * pitch, item);
    }
}

void midge_copy(const midge_strip *strip, const midge_op *op) {
    const uint32_t *shape = &op->word[MIDGE_COPY_SHAPE];
    const size_t item = op->word[MIDGE_COPY_ITEM];
    const uint8_t *x = strip->arena + op->word[MIDGE_OP_X];
    uint8_t *y = strip->arena + op->word[MIDGE_OP_Y];
    for (uint32_t a = 0; a < shape[0]; ++a)
        for (uint32_t b = 0; b < shape[1]; ++b)
            for (uint32_t c = 0; c < shape[2]; ++c)
                for (uint32_t d = 0; d < shape[3]; ++d) {
                    const uint8_t *from =
                        x + (along(op, 0, a) + along(op, 1, b) + along(op, 2, c) + along(op, 3, d));
                    for (uint32_t e = 0; e < shape[4]; ++e) {
                        copy_run(y, from + along(op, 4, e), shape[5], along(op, 5, 1), item);
                        y += shape[5] * item;
                    }
                }
}
