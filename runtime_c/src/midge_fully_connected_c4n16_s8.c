/* midge_fully_connected_c4n16_s8.c - one vector times a matrix in panels of 16 channels.
 *
 * The portable twin of the vector kernels that read the same constants.
 */
#include "midge_kernel.h"

#define PANEL 16u

void midge_fully_connected_c4n16_s8(const midge_strip *strip, const midge_op *op) {
    const size_t depth = op->word[MIDGE_FC_DEPTH], padded = (depth + 3u) & ~(size_t)3u;
    const size_t channels = op->word[MIDGE_FC_CHANNELS];
    const uint32_t *bias = strip->data + op->word[MIDGE_OP_DATA], *m = bias + channels;
    const int8_t *weight = (const int8_t *)(m + channels);
    const midge_requant limits = midge_requant_limits(op->word[MIDGE_FC_CODES]);
    const int8_t *x = midge_codes_at(strip, op, MIDGE_OP_X);
    int8_t *y = midge_codes_at(strip, op, MIDGE_OP_Y);
    int32_t start = 0; /* less the zero point of the weights times the codes */
    for (size_t k = 0; k < depth; ++k)
        start -= x[k] * midge_signed(op->word[MIDGE_FC_W_ZERO_POINT]);

    for (size_t c = strip->first * PANEL; c < strip->last * PANEL && c < channels; c += PANEL) {
        const size_t count = channels - c < PANEL ? channels - c : PANEL;
        const int8_t *panel = weight + c * padded;
        int32_t acc[PANEL];
        for (size_t i = 0; i < count; ++i)
            acc[i] = start;
        for (size_t k = 0; k < depth; ++k)
            for (size_t i = 0; i < count; ++i)
                acc[i] += x[k] * panel[(k / 4 * count + i) * 4 + k % 4];
        midge_store_s8(y + c, acc, count, bias + c, m + c, &limits);
    }
}
