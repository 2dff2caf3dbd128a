/* midge_softmax_s8.c - softmax over the last axis; the output has scale 1/256, zero point -128. */
#include "midge_kernel.h"

/* E[d]; those behind the table are 0. */
static inline uint32_t exponential(const uint32_t *table, uint32_t entries, int32_t d) {
    return (uint32_t)d < entries ? table[d] : 0u;
}

/* d = max - x, S = sum E[d], y = min(255, (256 * E[d] + S / 2) / S) - 128, all in uint32; the
 * converter scales the table E so that S < 2^32, and E <= 2^22. */
void midge_softmax_s8(const midge_strip *strip, const midge_op *op) {
    const size_t depth = op->word[MIDGE_SOFTMAX_DEPTH];
    const uint32_t entries = op->word[MIDGE_SOFTMAX_ENTRIES];
    const uint32_t *table = strip->data + op->word[MIDGE_OP_DATA];
    const int8_t *x = midge_codes_at(strip, op, MIDGE_OP_X);
    int8_t *y = midge_codes_at(strip, op, MIDGE_OP_Y);

    for (uint32_t row = op->word[MIDGE_SOFTMAX_ROWS]; row > 0; --row, x += depth, y += depth) {
        int32_t max = -128;
        for (size_t i = 0; i < depth; ++i)
            max = x[i] > max ? x[i] : max;
        uint32_t sum = 0;
        for (size_t i = 0; i < depth; ++i)
            sum += exponential(table, entries, max - x[i]);
        for (size_t i = 0; i < depth; ++i) {
            const uint32_t e = exponential(table, entries, max - x[i]);
            const uint32_t q = (256u * e + (sum >> 1)) / sum;
            y[i] = (int8_t)((int32_t)(q < 255u ? q : 255u) - 128);
        }
    }
}
