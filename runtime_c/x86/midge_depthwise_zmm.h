/* midge_depthwise_zmm.h - 16 channels of a 3 x 3 window in one register of 512 bits. Private.
 *
 * Each 32-bit lane holds the codes of one channel in three rows of a column, plus 128, and a byte
 * that is multiplied by 0: vpdpbusd multiplies unsigned codes by signed weights, exactly.
 */
#ifndef MIDGE_DEPTHWISE_ZMM_H
#define MIDGE_DEPTHWISE_ZMM_H

#include "midge_depthwise_group.h"

typedef __m512i lanes;
typedef __m512i column;

/* The windows that a row of stride 1 is in: they hold 2 columns so far, and 1. */
typedef struct windows {
    lanes first, second;
} windows;

/* What 16 channels need for all pixels. */
typedef struct group {
    __m512i weight[3]; /* of each column of the window */
    lanes bias;        /* less (x_zero_point + 128) * sum(weight) */
    column padding;
    windows before; /* of stride 1, where X begins */
    __m512i zero_point;
    __m512 m, low, high;
} group;

/* 16 bytes as 32-bit lanes, the upper bytes 0. */
static inline __m512i spread(const int8_t *x) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
}

/* a | b << 8 | c << 16, then ^ flip in the lower two bytes. */
static inline __m512i stack(const int8_t *a, const int8_t *b, const int8_t *c, __m512i flip) {
    const __m512i shifted_b = _mm512_slli_epi32(spread(b), 8);
    const __m512i shifted_c = _mm512_slli_epi32(spread(c), 16);
    const __m512i upper = _mm512_xor_si512(shifted_c, flip);
    return _mm512_ternarylogic_epi32(spread(a), shifted_b, upper, 0x96); /* a ^ b ^ c */
}

static inline column column_of(const int8_t *a, const int8_t *b, const int8_t *c) {
    return stack(a, b, c, _mm512_set1_epi32(0x808080));
}

static inline void prepare(group *g, const midge_conv *p, const constants *from) {
    const uint32_t code = (uint32_t)(p->x_zero_point + 128);
    const int8_t *w = from->weight;
    g->padding = _mm512_set1_epi32((int32_t)(code | code << 8 | code << 16));
    __m512i sum = _mm512_setzero_si512();
    for (int i = 0; i < 3; ++i, w += from->pitch) {
        g->weight[i] = stack(w, w + 3 * from->pitch, w + 6 * from->pitch, _mm512_setzero_si512());
        sum = _mm512_dpbusd_epi32(sum, g->padding, g->weight[i]);
    }
    g->bias = _mm512_sub_epi32(_mm512_loadu_si512(from->bias), sum);
    g->before.second =
        p->left > 0 ? _mm512_dpbusd_epi32(g->bias, g->padding, g->weight[0]) : g->bias;
    g->before.first = _mm512_dpbusd_epi32(g->before.second, g->padding, g->weight[1]);
    g->m = _mm512_loadu_ps(from->m);
    g->low = _mm512_set1_ps((float)p->limits.low);
    g->high = _mm512_set1_ps((float)p->limits.high);
    g->zero_point = _mm512_set1_epi32(p->limits.zero_point);
}

/* Stores the codes of 16 channels. */
static inline void finish(const group *g, lanes acc, int8_t *y) {
    const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(acc), g->m);
    const __m512 bounded = _mm512_min_ps(_mm512_max_ps(product, g->low), g->high);
    const __m512i codes = _mm512_add_epi32(_mm512_cvtps_epi32(bounded), g->zero_point);
    _mm_storeu_si128((__m128i *)(void *)y, _mm512_cvtepi32_epi8(codes));
}

static inline column padding_column(const group *g) {
    return g->padding;
}

static inline windows windows_before(const group *g) {
    return g->before;
}

/* Adds a column and returns the sums of the window that it ends. */
static inline lanes add_column(const group *g, windows *open, column x) {
    const lanes done = _mm512_dpbusd_epi32(open->first, x, g->weight[2]);
    open->first = _mm512_dpbusd_epi32(open->second, x, g->weight[1]);
    open->second = _mm512_dpbusd_epi32(g->bias, x, g->weight[0]);
    return done;
}

/* Adds two columns to the window of stride 2 that begins with them, and the first of them to the
 * one before, whose sums are returned. */
static inline lanes add_columns(const group *g, lanes *open, column x, column next) {
    const lanes done = _mm512_dpbusd_epi32(*open, x, g->weight[2]);
    *open = _mm512_dpbusd_epi32(g->bias, x, g->weight[0]);
    *open = _mm512_dpbusd_epi32(*open, next, g->weight[1]);
    return done;
}

/* The sums of the window of three columns. */
static inline lanes sum_columns(const group *g, column x, column next, column last) {
    const lanes sum = _mm512_dpbusd_epi32(g->bias, x, g->weight[0]);
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, next, g->weight[1]), last, g->weight[2]);
}

#endif
