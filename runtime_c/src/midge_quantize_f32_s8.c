/* midge_quantize_f32_s8.c - float32 to int8 codes: clamp(rint(x / scale) + zero_point). */
#include "midge_kernel.h"

/* A true division, as ONNX has it. Infinities saturate; NaN gives the lowest code. y may begin
 * where x does. */
void midge_quantize_f32_s8(const midge_strip *strip, const midge_op *op) {
    const float scale = midge_float(op->word[MIDGE_MAP_SCALE]);
    const int32_t zero_point = midge_signed(op->word[MIDGE_MAP_ZERO_POINT]);
    const float low = (float)(-128 - zero_point), high = (float)(127 - zero_point);
    const uint8_t *x = strip->arena + op->word[MIDGE_OP_X];
    int8_t *y = midge_codes_at(strip, op, MIDGE_OP_Y);
    const size_t count = op->word[MIDGE_MAP_COUNT];
    for (size_t i = 0; i < count; ++i) {
        float v;
        memcpy(&v, x + 4 * i, sizeof v);
        v = midge_as_float(v / scale);
        v = v > low ? v : low;
        v = v < high ? v : high;
        y[i] = (int8_t)(midge_rint(v) + zero_point);
    }
}
