/* midge_cast.c - float32 to int32 and back, and either to a truth. */
#include "midge_word.h"

/* Towards 0; the nearest there is, 0 for NaN. */
static int32_t whole(float v) {
    if (v >= 2147483648.0f)
        return INT32_MAX;
    if (v <= -2147483648.0f)
        return INT32_MIN;
    return v >= 0.0f || v < 0.0f ? (int32_t)v : 0;
}

void midge_cast(const midge_strip *strip, const midge_op *op) {
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    const midge_word *w = midge_words_at(strip, op, MIDGE_OP_X);
    midge_real *y = midge_reals_at(strip, op, MIDGE_OP_Y);
    midge_word *z = midge_words_at(strip, op, MIDGE_OP_Y);
    const uint32_t count = op->word[MIDGE_MAP_COUNT], kind = op->word[MIDGE_CAST_KIND];
    for (uint32_t i = 0; i < count; ++i)
        if (kind == MIDGE_CAST_TO_F32)
            y[i] = (float)w[i];
        else if (kind == MIDGE_CAST_TO_S32)
            z[i] = whole(x[i]);
        else if (kind == MIDGE_CAST_TRUTH_S32)
            z[i] = w[i] != 0;
        else
            z[i] = !(x[i] >= 0.0f && x[i] <= 0.0f); /* NaN is not 0 */
}
