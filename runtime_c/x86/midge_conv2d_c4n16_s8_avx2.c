/* midge_conv2d_c4n16_s8_avx2.c - 2-D convolution with one group, 8 channels of 6 pixels at once.
 *
 * Codes and weights are widened to 16 bits: vpmaddwd adds two products exactly, while vpmaddubsw
 * would saturate at 255 * 127 * 2.
 */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_avx2.h"

typedef int16_t midge_element;

/* to[i] = from[i] + 128, exactly `count` of them. */
static inline void midge_widen(int16_t *to, const int8_t *from, size_t count) {
    const __m256i offset = _mm256_set1_epi16(128);
    size_t i = 0;
    if (count >= 16) {
        for (;; i = i + 16 <= count - 16 ? i + 16 : count - 16) { /* the last ones overlap */
            const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
            _mm256_storeu_si256((__m256i *)(void *)(to + i),
                                _mm256_add_epi16(_mm256_cvtepi8_epi16(codes), offset));
            if (i + 16 == count)
                return;
        }
    }
    if (count >= 8) {
        for (;; i = count - 8) {
            const __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)(from + i));
            _mm_storeu_si128(
                (__m128i *)(void *)(to + i),
                _mm_add_epi16(_mm_cvtepi8_epi16(codes), _mm256_castsi256_si128(offset)));
            if (i + 8 == count)
                return;
        }
    }
    for (; i < count; ++i)
        to[i] = (int16_t)(from[i] + 128);
}

#include "midge_conv_windows.h"

/* Channels that one call of sums_N makes. */
#define HALF 8

/* DO(i) for each pixel of a tile. */
#define EACH_1(DO) DO(0)
#define EACH_2(DO) EACH_1(DO) DO(1)
#define EACH_3(DO) EACH_2(DO) DO(2)
#define EACH_4(DO) EACH_3(DO) DO(3)
#define EACH_5(DO) EACH_4(DO) DO(4)
#define EACH_6(DO) EACH_5(DO) DO(5)

/* Eight weights of each of two pairs of channels, as int16. */
static inline __m256i widened(const int8_t *w) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)w));
}

/* Four neighbours of a window, four times. */
static inline __m256i neighbours(const int16_t *x) {
    return _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(const void *)x));
}

#define START(i)                                                                                   \
    const int16_t *x##i = tile->x[i];                                                              \
    __m256i a##i = _mm256_setzero_si256(), b##i = a##i;

#define STEP(i)                                                                                    \
    {                                                                                              \
        const __m256i x = neighbours(x##i + k);                                                    \
        a##i = _mm256_add_epi32(a##i, _mm256_madd_epi16(x, wa));                                   \
        b##i = _mm256_add_epi32(b##i, _mm256_madd_epi16(x, wb));                                   \
    }

/* Channels 0 1 4 5 2 3 6 7. */
#define FINISH(i) sum[i] = _mm256_hadd_epi32(a##i, b##i);

/* Sums 8 channels of the pixels of a tile; `weight` advances by `step` for 4 neighbours. */
#define SUMS(count)                                                                                \
    static void sums_##count(const midge_windows *w, const midge_tile *tile, const int8_t *weight, \
                             size_t step, __m256i *sum) {                                          \
        EACH_##count(START) size_t k = 0;                                                          \
        for (size_t run = w->runs; run > 0; --run, k += w->run_step - w->run)                      \
            for (const size_t end = k + w->run; k < end; k += 4, weight += step) {                 \
                const __m256i wa = widened(weight), wb = widened(weight + 16);                     \
                EACH_##count(STEP)                                                                 \
            }                                                                                      \
        EACH_##count(FINISH)                                                                       \
    }

SUMS(1)
SUMS(2)
SUMS(3)
SUMS(4)
SUMS(5)
SUMS(6)

typedef void (*sums)(const midge_windows *w, const midge_tile *tile, const int8_t *weight,
                     size_t step, __m256i *sum);

/* Constants of 8 channels in the order of the sums. */
static inline __m256i in_order(const uint32_t *words) {
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)words);
    return _mm256_permute4x64_epi64(v, 0xD8);
}

/* Stores up to 8 codes. */
static inline void store(int8_t *y, __m128i codes, size_t count) {
    if (count >= HALF) {
        _mm_storel_epi64((__m128i *)(void *)y, codes);
        return;
    }
    uint64_t bytes = (uint64_t)_mm_cvtsi128_si64(codes);
    for (size_t i = 0; i < count; ++i, bytes >>= 8)
        y[i] = (int8_t)(uint8_t)bytes;
}

/* Makes codes of the sums of two pixels. */
static inline __m128i requantize(__m256i s0, __m256i s1, __m256i bias, __m256 m,
                                 const midge_requant *limits) {
    const __m256 high = _mm256_set1_ps((float)limits->high);
    const __m256i v0 = midge_scale_avx2(_mm256_add_epi32(s0, bias), m, high);
    const __m256i v1 = midge_scale_avx2(_mm256_add_epi32(s1, bias), m, high);
    const __m256i v = _mm256_adds_epi16(_mm256_packs_epi32(v0, v1),
                                        _mm256_set1_epi16((int16_t)limits->zero_point));
    /* words: channels 01 45 of both pixels, then 23 67 */
    const __m128i codes =
        _mm_packs_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    const __m128i low = _mm_set1_epi8((int8_t)(limits->zero_point + (int32_t)limits->low));
    return _mm_max_epi8(_mm_unpacklo_epi16(codes, _mm_srli_si128(codes, 8)), low);
}

static void midge_make_tile(const midge_conv *p, const midge_windows *w, const midge_tile *tile,
                            size_t first, size_t last) {
    static const sums made[] = {sums_1, sums_2, sums_3, sums_4, sums_5, sums_6};
    for (size_t c = first; c < last; c += HALF) {
        const size_t panel = c - c % MIDGE_PANEL, left = p->out - panel, count = p->out - c;
        const size_t step = 4 * (left < MIDGE_PANEL ? left : MIDGE_PANEL);
        __m256i sum[MIDGE_TILE];
        made[tile->count - 1](w, tile, p->weight + panel * w->depth + 4 * (c - panel), step, sum);
        const __m256i bias = in_order(p->bias + c);
        const __m256 m = _mm256_castsi256_ps(in_order(p->m + c));
        for (int i = 0; i < tile->count; i += 2) {
            const int j = i + 1 < tile->count ? i + 1 : i;
            const __m128i codes = requantize(sum[i], sum[j], bias, m, &p->limits);
            store(tile->y[i] + c, codes, count);
            if (j > i)
                store(tile->y[j] + c, _mm_srli_si128(codes, 8), count);
        }
    }
}

void midge_conv2d_c4n16_s8_avx2(const midge_strip *strip, const midge_op *op) {
    midge_vector_conv(strip, op);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
