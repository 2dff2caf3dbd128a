/* midge_add_wide_s8.c - elementwise sum in 64-bit integers. */
#include "midge_kernel.h"

/* As midge_add_s8, for layers that need more bits to meet the definition on every pair. */
void midge_add_wide_s8(const midge_memory *memory, const midge_op *op) {
    const int64_t ma = midge_signed(op->word[MIDGE_ADD_MA]);
    const int64_t mb = midge_signed(op->word[MIDGE_ADD_MB]);
    const int64_t k = (int64_t)((uint64_t)op->word[MIDGE_ADD_K + 1] << 32 | op->word[MIDGE_ADD_K]);
    const uint32_t shift = op->word[MIDGE_ADD_SHIFT];
    const int64_t half = ((int64_t)1 << (shift - 1)) - 1;
    const int8_t *a = midge_codes_at(memory, op, MIDGE_OP_X);
    const int8_t *b = midge_codes_at(memory, op, MIDGE_ADD_B);
    int8_t *y = midge_codes_at(memory, op, MIDGE_OP_Y);
    const size_t count = op->word[MIDGE_ADD_COUNT];
    for (size_t i = 0; i < count; ++i) {
        const int64_t sum = a[i] * ma + b[i] * mb + k;
        y[i] = midge_saturate_s8((int32_t)((sum + half + ((sum >> shift) & 1)) >> shift));
    }
}
