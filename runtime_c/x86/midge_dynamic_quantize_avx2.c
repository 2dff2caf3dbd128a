/* midge_dynamic_quantize_avx2.c - float32 to int8 codes by the range of the data. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_dynamic.h"

#include "midge_coder_avx2.h"

void midge_dynamic_quantize_avx2(const midge_strip *strip, const midge_op *op) {
    const size_t count = op->word[MIDGE_MAP_COUNT];
    const uint8_t *x = strip->arena + op->word[MIDGE_OP_X];
    const midge_real *real = midge_reals_at(strip, op, MIDGE_OP_X);
    uint8_t *y = strip->arena + op->word[MIDGE_OP_Y];
    __m256 least = _mm256_setzero_ps(), most = least;
    float low[8], high[8];
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m256 v = _mm256_loadu_ps((const float *)(real + i));
        least = _mm256_min_ps(v, least); /* NaN leaves the second operand */
        most = _mm256_max_ps(v, most);
    }
    _mm256_storeu_ps(low, least);
    _mm256_storeu_ps(high, most);
    for (size_t k = 1; k < 8; ++k) {
        low[0] = low[k] < low[0] ? low[k] : low[0];
        high[0] = high[k] > high[0] ? high[k] : high[0];
    }
    for (; i < count; ++i) {
        low[0] = real[i] < low[0] ? real[i] : low[0];
        high[0] = real[i] > high[0] ? real[i] : high[0];
    }
    const midge_dynamic_scale s = midge_choose_scale(y, low[0], high[0]);
    midge_encode((int8_t *)(y + MIDGE_DYNAMIC_CODES), x, count, s.scale, s.zero_point);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
