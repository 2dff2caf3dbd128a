/* midge_dynamic_quantize.c - float32 to int8 codes by the range of the data, which includes 0.
 *
 *     scale = (max - min) / 255,  zero_point = rint(0 - min / scale) of uint8 codes
 *
 * Each float operation rounds alone: the same bits on every core.
 */
#include "midge_kernel_f32.h"

/* Comparisons that NaN fails: it counts for no end, and becomes the lowest code. */
static float between(float v, float low, float high) {
    v = v > low ? v : low;
    return v < high ? v : high;
}

void midge_dynamic_quantize(const midge_strip *strip, const midge_op *op) {
    const size_t count = op->word[MIDGE_MAP_COUNT];
    const midge_real *x = midge_reals_at(strip, op, MIDGE_OP_X);
    uint8_t *y = strip->arena + op->word[MIDGE_OP_Y];
    int8_t *codes = (int8_t *)(y + MIDGE_DYNAMIC_CODES);
    float min = 0.0f, max = 0.0f;
    for (size_t i = 0; i < count; ++i) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    float scale = midge_as_float(midge_as_float(max - min) / 255.0f);
    if (scale == 0.0f)
        scale = 1.0f;
    const float zero = midge_as_float(0.0f - midge_as_float(min / scale));
    const int32_t zero_point = midge_rint(between(zero, 0.0f, 255.0f)) - 128;

    memset(y, 0, MIDGE_DYNAMIC_CODES);
    memcpy(y + MIDGE_DYNAMIC_SCALE, &scale, sizeof scale);
    memcpy(y + MIDGE_DYNAMIC_ZERO_POINT, &zero_point, sizeof zero_point);
    const float low = (float)(-128 - zero_point), high = (float)(127 - zero_point);
    for (size_t i = 0; i < count; ++i) {
        const float v = between(midge_as_float(x[i] / scale), low, high);
        codes[i] = (int8_t)(midge_rint(v) + zero_point);
    }
}
