/* midge_dynamic_quantize.c - float32 to int8 codes by the range of the data, which includes 0.
 *
 *     scale = (max - min) / 255,  zero_point = rint(0 - min / scale) of uint8 codes
 */
#include "midge_dynamic.h"

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
    const midge_dynamic_scale s = midge_choose_scale(y, min, max);
    const float low = (float)(-128 - s.zero_point), high = (float)(127 - s.zero_point);
    for (size_t i = 0; i < count; ++i) {
        const float v = midge_between(midge_as_float(x[i] / s.scale), low, high);
        codes[i] = (int8_t)(midge_rint(v) + s.zero_point);
    }
}
