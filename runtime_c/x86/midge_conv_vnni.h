/* midge_conv_vnni.h - the convolution in panels by dot products of unsigned and signed bytes.
 * Private.
 *
 * A file includes it after midge_vnni.h.
 */
#ifndef MIDGE_CONV_VNNI_H
#define MIDGE_CONV_VNNI_H

typedef uint8_t midge_element;

/* to[i] = from[i] + 128, exactly `count` of them. */
static inline void midge_widen(uint8_t *to, const int8_t *from, size_t count) {
    const __m128i sign = _mm_set1_epi8(-128);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm_storeu_si128((__m128i *)(void *)(to + i), _mm_xor_si128(codes, sign));
    }
    if (i < count && count >= 16) { /* once more, up to the end */
        i = count - 16;
        const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm_storeu_si128((__m128i *)(void *)(to + i), _mm_xor_si128(codes, sign));
        return;
    }
    for (; i + 4 <= count; i += 4) {
        uint32_t codes;
        memcpy(&codes, from + i, 4);
        codes ^= 0x80808080u;
        memcpy(to + i, &codes, 4);
    }
    for (; i < count; ++i)
        to[i] = (uint8_t)from[i] ^ 0x80u;
}

static inline uint32_t midge_sum(const uint8_t *x, size_t count) {
    const __m128i none = _mm_setzero_si128();
    __m128i sum = none;
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(x + i));
        sum = _mm_add_epi32(sum, _mm_sad_epu8(codes, none));
    }
    for (; i < count; i += 4) {
        int32_t word;
        memcpy(&word, x + i, 4);
        sum = _mm_add_epi32(sum, _mm_sad_epu8(_mm_cvtsi32_si128(word), none));
    }
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_srli_si128(sum, 8)));
}

#include "midge_conv_windows.h"

#define MIDGE_START(i)                                                                             \
    const uint8_t *x##i = tile->x[i];                                                              \
    midge_lanes a##i = midge_same((int32_t)tile->start[i]), b##i = a##i;

#define MIDGE_STEP_1(i) a##i = midge_dot(a##i, midge_four(x##i + k), wa);

#define MIDGE_STEP_2(i)                                                                            \
    {                                                                                              \
        const midge_lanes x = midge_four(x##i + k);                                                \
        a##i = midge_dot(a##i, x, wa);                                                             \
        b##i = midge_dot(b##i, x, wb);                                                             \
    }

#define MIDGE_FINISH(i)                                                                            \
    midge_store_group(tile->y[i] + c, a##i, b##i, left, p->bias + c, p->m + c, &p->limits);

/* Makes one group of channels, the first of `left`, of a tile of as many pixels. */
#define MIDGE_GROUP(pixels)                                                                        \
    static void midge_group_##pixels(const midge_conv *p, const midge_windows *w,                  \
                                     const midge_tile *tile, size_t c, size_t left, int two) {     \
        const int8_t *weight = p->weight + c * w->depth;                                           \
        const size_t step = 4 * (left < MIDGE_PANEL ? left : MIDGE_PANEL);                         \
        const size_t second = midge_second(w->depth);                                              \
        size_t k = 0;                                                                              \
        MIDGE_EACH_##pixels(MIDGE_START) for (size_t run = w->runs; run > 0;                       \
                                              --run, k += w->run_step - w->run) {                  \
            const size_t end = k + w->run;                                                         \
            if (two)                                                                               \
                for (; k < end; k += 4, weight += step) {                                          \
                    const midge_lanes wa = midge_weights(weight);                                  \
                    const midge_lanes wb = midge_weights(weight + second);                         \
                    MIDGE_EACH_##pixels(MIDGE_STEP_2)                                              \
                }                                                                                  \
            else                                                                                   \
                for (; k < end; k += 4, weight += step) {                                          \
                    const midge_lanes wa = midge_weights(weight);                                  \
                    MIDGE_EACH_##pixels(MIDGE_STEP_1)                                              \
                }                                                                                  \
        }                                                                                          \
        MIDGE_EACH_##pixels(MIDGE_FINISH)                                                          \
    }

MIDGE_GROUP(1)
MIDGE_GROUP(2)
MIDGE_GROUP(3)
MIDGE_GROUP(4)
MIDGE_GROUP(5)
MIDGE_GROUP(6)

typedef void (*midge_group_maker)(const midge_conv *p, const midge_windows *w,
                                  const midge_tile *tile, size_t c, size_t left, int two);

static void midge_make_tile(const midge_conv *p, const midge_windows *w, const midge_tile *tile,
                            size_t first, size_t last) {
    static const midge_group_maker makers[MIDGE_TILE] = {
        midge_group_1, midge_group_2, midge_group_3, midge_group_4, midge_group_5, midge_group_6};
    for (size_t c = first; c < last;) {
        const size_t group = midge_group(last - c);
        makers[tile->count - 1](p, w, tile, c, last - c, group == 2 * MIDGE_LANES);
        c += group;
    }
}

#endif
