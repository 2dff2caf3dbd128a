/* midge_dequantize_s8_f32.c - int8 codes to float32: (x - zero_point) * scale. */
#include "midge_kernel.h"

void midge_dequantize_s8_f32(const midge_strip *strip, const midge_op *op) {
    const float scale = midge_float(op->word[MIDGE_MAP_SCALE]);
    const int32_t zero_point = midge_signed(op->word[MIDGE_MAP_ZERO_POINT]);
    const int8_t *x = midge_codes_at(strip, op, MIDGE_OP_X);
    uint8_t *y = strip->arena + op->word[MIDGE_OP_Y];
    const size_t count = op->word[MIDGE_MAP_COUNT];
    for (size_t i = 0; i < count; ++i) {
        const float v = midge_as_float((float)(x[i] - zero_point) * scale);
        memcpy(y + 4 * i, &v, sizeof v);
    }
}
