/* midge_quantize_f32_s8_avx2.c - float32 to int8 codes, 32 at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_coder_avx2.h"

/* y may begin where x does. */
void midge_quantize_f32_s8_avx2(const midge_strip *strip, const midge_op *op) {
    const uint8_t *x = strip->arena + op->word[MIDGE_OP_X];
    midge_encode(midge_codes_at(strip, op, MIDGE_OP_Y), x, op->word[MIDGE_MAP_COUNT],
                 midge_float(op->word[MIDGE_MAP_SCALE]),
                 midge_signed(op->word[MIDGE_MAP_ZERO_POINT]));
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
