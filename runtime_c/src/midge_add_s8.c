/* midge_add_s8.c - elementwise sum in 32-bit integers. */
#include "midge_kernel.h"

/* y = half_even((a * MA + b * MB + K) / 2^SHIFT), saturated. The converter has compared it with the
 * definition (numerics, Add) on all 65,536 pairs of codes and proved that 32 bits hold it. y may be
 * a or b. */
void midge_add_s8(const midge_strip *strip, const midge_op *op) {
    const int32_t ma = midge_signed(op->word[MIDGE_ADD_MA]);
    const int32_t mb = midge_signed(op->word[MIDGE_ADD_MB]);
    const int32_t k = midge_signed(op->word[MIDGE_ADD_K]);
    const uint32_t shift = op->word[MIDGE_ADD_SHIFT];
    const int32_t half = ((int32_t)1 << (shift - 1)) - 1;
    const size_t count = op->word[MIDGE_ADD_COUNT];
    const midge_add_rows rows = midge_add_rows_at(strip, op);
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const int8_t *a = midge_row(&rows.a, row), *b = midge_row(&rows.b, row);
        int8_t *y = midge_row(&rows.y, row);
        for (size_t i = 0; i < count; ++i) {
            const int32_t sum = a[i] * ma + b[i] * mb + k;
            y[i] = midge_saturate_s8((sum + half + ((sum >> shift) & 1)) >> shift);
        }
    }
}
