/* midge_dequantize_s8_f32_avx2.c - int8 codes to float32, 8 at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_kernel.h"
#include "midge_target.h"

MIDGE_TARGET_BEGIN("avx2,fma")
#include MIDGE_INTRINSICS

void midge_dequantize_s8_f32_avx2(const midge_strip *strip, const midge_op *op) {
    const __m256 scale = _mm256_set1_ps(midge_float(op->word[MIDGE_MAP_SCALE]));
    const __m256i zero_point = _mm256_set1_epi32(midge_signed(op->word[MIDGE_MAP_ZERO_POINT]));
    const int8_t *x = midge_codes_at(strip, op, MIDGE_OP_X);
    uint8_t *y = strip->arena + op->word[MIDGE_OP_Y];
    const size_t count = op->word[MIDGE_MAP_COUNT];
    for (size_t i = 0; i < count; i += 8) {
        const size_t left = count - i < 8 ? count - i : 8;
        int8_t last[8] = {0};
        if (left < 8)
            memcpy(last, x + i, left);
        const int8_t *from = left < 8 ? last : x + i;
        const __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)from);
        const __m256i centred = _mm256_sub_epi32(_mm256_cvtepi8_epi32(codes), zero_point);
        const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(centred), scale);
        if (left == 8)
            _mm256_storeu_ps((float *)(void *)(y + 4 * i), v);
        else {
            float all[8];
            _mm256_storeu_ps(all, v);
            memcpy(y + 4 * i, all, 4 * left);
        }
    }
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
