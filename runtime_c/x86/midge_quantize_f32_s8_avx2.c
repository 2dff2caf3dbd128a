/* midge_quantize_f32_s8_avx2.c - float32 to int8 codes, 32 at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_kernel.h"
#include "midge_target.h"

MIDGE_TARGET_BEGIN("avx2,fma")
#include MIDGE_INTRINSICS

typedef struct rule {
    __m256 scale, low, high;
    __m256i zero_point;
} rule;

/* Eight codes. NaN gives the lowest: the maximum of it and `low` is `low`. */
static inline __m256i coded(__m256 v, const rule *r) {
    v = _mm256_min_ps(_mm256_max_ps(_mm256_div_ps(v, r->scale), r->low), r->high);
    return _mm256_add_epi32(_mm256_cvtps_epi32(v), r->zero_point);
}

static inline __m256i next_8(const uint8_t *x, const rule *r) {
    return coded(_mm256_loadu_ps((const float *)(const void *)x), r);
}

/* Codes 0..31 from the numbers at x. */
static inline __m256i next_32(const uint8_t *x, const rule *r) {
    const __m256i a = _mm256_packs_epi32(next_8(x, r), next_8(x + 32, r));
    const __m256i b = _mm256_packs_epi32(next_8(x + 64, r), next_8(x + 96, r));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
}

/* y may begin where x does: what is written has been read. */
void midge_quantize_f32_s8_avx2(const midge_strip *strip, const midge_op *op) {
    const int32_t zero_point = midge_signed(op->word[MIDGE_MAP_ZERO_POINT]);
    const uint8_t *x = strip->arena + op->word[MIDGE_OP_X];
    int8_t *y = midge_codes_at(strip, op, MIDGE_OP_Y);
    const size_t count = op->word[MIDGE_MAP_COUNT];
    size_t i = 0;
    rule r;
    r.scale = _mm256_set1_ps(midge_float(op->word[MIDGE_MAP_SCALE]));
    r.low = _mm256_set1_ps((float)(-128 - zero_point));
    r.high = _mm256_set1_ps((float)(127 - zero_point));
    r.zero_point = _mm256_set1_epi32(zero_point);
    for (; i + 32 <= count; i += 32) {
        const __m256i codes = next_32(x + 4 * i, &r);
        _mm256_storeu_si256((__m256i *)(void *)(y + i), codes);
    }
    for (; i < count; ++i) {
        float v;
        memcpy(&v, x + 4 * i, sizeof v);
        const __m256i code = coded(_mm256_set1_ps(v), &r);
        y[i] = (int8_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(code));
    }
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
