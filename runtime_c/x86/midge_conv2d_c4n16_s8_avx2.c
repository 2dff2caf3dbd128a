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

static inline uint32_t midge_sum(const int16_t *x, size_t count) {
    const __m256i ones = _mm256_set1_epi16(1);
    const __m128i one = _mm256_castsi256_si128(ones);
    __m256i all = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)(x + i));
        all = _mm256_add_epi32(all, _mm256_madd_epi16(codes, ones));
    }
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    if (i + 8 <= count) {
        const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(x + i));
        sum = _mm_add_epi32(sum, _mm_madd_epi16(codes, one));
        i += 8;
    }
    if (i < count) {
        const __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)(x + i));
        sum = _mm_add_epi32(sum, _mm_madd_epi16(codes, one));
    }
    sum = _mm_add_epi32(sum, _mm_srli_si128(sum, 8));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_srli_si128(sum, 4)));
}

#include "midge_conv_windows.h"

#define GROUP 8 /* channels that are made at once */

/* DO(i, j) for each pair of pixels. */
#define PAIRS_1(DO) DO(0, 0)
#define PAIRS_2(DO) DO(0, 1)
#define PAIRS_3(DO) PAIRS_2(DO) DO(2, 2)
#define PAIRS_4(DO) PAIRS_2(DO) DO(2, 3)
#define PAIRS_5(DO) PAIRS_4(DO) DO(4, 4)
#define PAIRS_6(DO) PAIRS_4(DO) DO(4, 5)

/* Four weights of each of four channels, as int16. */
static inline __m256i widened(const int8_t *w) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)w));
}

/* Four neighbours of a window, four times. */
static inline __m256i neighbours(const int16_t *x) {
    return _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(const void *)x));
}

/* What turns the sums of 8 channels into codes. Channels stand in the order 0 1 4 5 2 3 6 7. */
typedef struct rescale {
    __m256i bias, zero_point;
    __m256 m, high;
    __m128i low;
} rescale;

static inline __m256i in_order(const uint32_t *words) {
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)words);
    return _mm256_permute4x64_epi64(v, 0xD8);
}

static inline rescale rescale_from(const midge_conv *p, size_t c) {
    rescale r;
    r.bias = in_order(p->bias + c);
    r.m = _mm256_castsi256_ps(in_order(p->m + c));
    r.high = _mm256_set1_ps((float)p->limits.high);
    r.zero_point = _mm256_set1_epi16((int16_t)p->limits.zero_point);
    r.low = _mm_set1_epi8((int8_t)(p->limits.zero_point + (int32_t)p->limits.low));
    return r;
}

/* The codes of two pixels, 8 channels each in their natural order. */
static inline __m128i requantize(__m256i s0, __m256i s1, const rescale *r) {
    const __m256i v0 = midge_scale_avx2(_mm256_add_epi32(s0, r->bias), r->m, r->high);
    const __m256i v1 = midge_scale_avx2(_mm256_add_epi32(s1, r->bias), r->m, r->high);
    const __m256i v = _mm256_adds_epi16(_mm256_packs_epi32(v0, v1), r->zero_point);
    /* Pairs of channels: 01 45 of both pixels, then 23 67. */
    const __m128i codes =
        _mm_packs_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    return _mm_max_epi8(_mm_unpacklo_epi16(codes, _mm_srli_si128(codes, 8)), r->low);
}

/* Stores the first channels of a pixel. */
static inline void store_part(int8_t *y, __m128i codes, size_t count) {
    uint64_t bytes;
    _mm_storel_epi64((__m128i *)(void *)&bytes, codes);
    for (size_t i = 0; i < count; ++i, bytes >>= 8)
        y[i] = (int8_t)(uint8_t)bytes;
}

/* Stores two pixels, all 8 channels of them or the first `count`. */
static inline void store(int8_t *y0, int8_t *y1, __m128i codes, size_t count) {
    if (count >= GROUP) {
        _mm_storel_epi64((__m128i *)(void *)y0, codes);
        _mm_storeu_si64(y1, _mm_unpackhi_epi64(codes, codes));
    } else {
        store_part(y0, codes, count);
        store_part(y1, _mm_srli_si128(codes, 8), count);
    }
}

#define START(i)                                                                                   \
    const int16_t *x##i = tile->x[i];                                                              \
    __m256i a##i = _mm256_set1_epi64x((int64_t)tile->start[i]), b##i = a##i;

#define STEP(i)                                                                                    \
    {                                                                                              \
        const __m256i x = neighbours(x##i + k);                                                    \
        a##i = _mm256_add_epi32(a##i, _mm256_madd_epi16(x, wa));                                   \
        b##i = _mm256_add_epi32(b##i, _mm256_madd_epi16(x, wb));                                   \
    }

/* A last pixel without a partner is made and stored twice. */
#define FINISH(i, j)                                                                               \
    {                                                                                              \
        const __m256i s0 = _mm256_hadd_epi32(a##i, b##i), s1 = _mm256_hadd_epi32(a##j, b##j);      \
        store(tile->y[i] + c, tile->y[j] + c, requantize(s0, s1, &r), p->out - c);                 \
    }

/* Makes a tile of as many pixels. */
#define TILE(pixels)                                                                               \
    static void tile_##pixels(const midge_conv *p, const midge_windows *w, const midge_tile *tile, \
                              size_t first, size_t last) {                                         \
        for (size_t c = first; c < last; c += GROUP) {                                             \
            const size_t panel = c - c % MIDGE_PANEL, left = p->out - panel;                       \
            const size_t step = 4 * (left < MIDGE_PANEL ? left : MIDGE_PANEL);                     \
            const int8_t *weight = p->weight + panel * w->depth + 4 * (c - panel);                 \
            size_t k = 0;                                                                          \
            MIDGE_EACH_##pixels(                                                                   \
                START) for (size_t run = w->runs; run > 0;                                         \
                            --run, k += w->run_step - w->run) for (const size_t end = k + w->run;  \
                                                                   k < end;                        \
                                                                   k += 4, weight += step) {       \
                const __m256i wa = widened(weight), wb = widened(weight + 16);                     \
                MIDGE_EACH_##pixels(STEP)                                                          \
            }                                                                                      \
            const rescale r = rescale_from(p, c);                                                  \
            PAIRS_##pixels(FINISH)                                                                 \
        }                                                                                          \
    }

TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)

static void midge_make_tile(const midge_conv *p, const midge_windows *w, const midge_tile *tile,
                            size_t first, size_t last) {
    switch (tile->count) {
    case 1:
        tile_1(p, w, tile, first, last);
        break;
    case 2:
        tile_2(p, w, tile, first, last);
        break;
    case 3:
        tile_3(p, w, tile, first, last);
        break;
    case 4:
        tile_4(p, w, tile, first, last);
        break;
    case 5:
        tile_5(p, w, tile, first, last);
        break;
    default:
        tile_6(p, w, tile, first, last);
        break;
    }
}

void midge_conv2d_c4n16_s8_avx2(const midge_strip *strip, const midge_op *op) {
    midge_vector_conv(strip, op);
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
