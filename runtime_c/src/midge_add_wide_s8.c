/* midge_add_wide_s8.c - elementwise sum in 64-bit integers. */
#include "midge_kernel.h"

/* As midge_add_s8, for layers that need more bits to meet the definition on every pair. */
void midge_add_wide_s8(const midge_strip *strip, const midge_op *op) {
    const int64_t ma = midge_signed(op->word[MIDGE_ADD_MA]);
    const int64_t mb = midge_signed(op->word[MIDGE_ADD_MB]);
    const int64_t k = (int64_t)((uint64_t)op->word[MIDGE_ADD_K + 1] << 32 | op->word[MIDGE_ADD_K]);
    const uint32_t shift = op->word[MIDGE_ADD_SHIFT];
    const int64_t half = ((int64_t)1 << (shift - 1)) - 1;
    const size_t count = op->word[MIDGE_ADD_COUNT];
    const midge_add_rows rows = midge_add_rows_at(strip, op);
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const int8_t *a = midge_row(&rows.a, row), *b = midge_row(&rows.b, row);
        int8_t *y = midge_row(&rows.y, row);
        for (size_t i = 0; i < count; ++i) {
            const int64_t sum = a[i] * ma + b[i] * mb + k;
            y[i] = midge_saturate_s8((int32_t)((sum + half + ((sum >> shift) & 1)) >> shift));
        }
    }
}
