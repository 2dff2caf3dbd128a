/* midge_top_f32.c - where along the middle axis of X its largest or smallest values stand, in
 * order.
 *
 * Of equal values the first comes first. NaN is in no order: where too few others are left, 0.
 */
#include "midge_word.h"

/* The best element that comes behind element `last` in that order; count where there is none. */
static size_t next_of(const midge_real *x, size_t count, size_t pitch, uint32_t smallest,
                      size_t last) {
    size_t best = count;
    for (size_t k = 0; k < count; ++k) {
        const float sign = smallest ? -1.0f : 1.0f, v = sign * x[k * pitch];
        if (last < count) {
            const float before = sign * x[last * pitch];
            if (!(v < before || (v <= before && k > last)))
                continue;
        }
        if (v >= v && (best == count || v > sign * x[best * pitch]))
            best = k;
    }
    return best;
}

void midge_top_f32(const midge_strip *strip, const midge_op *op) {
    const size_t count = op->word[MIDGE_REDUCE_COUNT], inner = op->word[MIDGE_REDUCE_INNER];
    const size_t top = op->word[MIDGE_TOP_K];
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    midge_word *y = midge_words_at(strip, op, MIDGE_OP_Y);
    for (uint32_t n = op->word[MIDGE_REDUCE_OUTER]; n > 0;
         --n, x += count * inner, y += top * inner)
        for (size_t i = 0; i < inner; ++i) {
            size_t last = count;
            for (size_t k = 0; k < top; ++k) {
                const size_t next = next_of(x + i, count, inner, op->word[MIDGE_ARG_FLAGS], last);
                last = next < count ? next : last;
                y[k * inner + i] = next < count ? (int32_t)next : 0;
            }
        }
}
