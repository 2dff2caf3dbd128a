/* midge_depthwise_ymm.h - 16 channels of a 3 x 3 window in two registers of 256 bits. Private.
 *
 * Included by midge_depthwise_conv2d_s8_LEVEL.c, which defines before it
 *
 *     static inline __m256i multiply_add(__m256i acc, __m256i x, __m256i w);
 *
 * acc[i] += x[2 * i] * w[2 * i] + x[2 * i + 1] * w[2 * i + 1], exact.
 *
 * Codes are widened to 16 bits and interleaved in pairs of taps: rows 0 and 1 of a column, and row
 * 2 of two neighbouring columns.
 */
#ifndef MIDGE_DEPTHWISE_YMM_H
#define MIDGE_DEPTHWISE_YMM_H

#include "midge_depthwise_group.h"

/* 16 channels, one number each or a pair: 0..3 and 8..11, then 4..7 and 12..15, which is how
 * vpunpck leaves them and vpackssdw joins them. */
typedef struct lanes {
    __m256i a, b;
} lanes;

/* Weights by the pairs of taps that they multiply. */
enum {
    RIGHT,      /* column 0 in rows 0 and 1: of the pixel whose window begins there */
    MIDDLE,     /* column 1 */
    LEFT,       /* column 2 */
    BELOW,      /* row 2, columns 0 and 1 */
    BELOW_LEFT, /* row 2, column 2, behind or before a column that counts nothing */
    PAIRS
};

/* What 16 channels need for all pixels. */
typedef struct group {
    lanes weight[PAIRS];
    lanes bias;          /* less x_zero_point * sum(weight) */
    lanes first, second; /* windows of stride 1 that begin 2 columns and 1 before X, or at X */
    __m256 m_a, m_b, high;
    __m256i padding, zero_point; /* int16 */
    __m128i low;
} group;

static inline __m256i widen(const int8_t *x) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)x));
}

static inline lanes interleave(__m256i first, __m256i second) {
    const lanes pair = {_mm256_unpacklo_epi16(first, second), _mm256_unpackhi_epi16(first, second)};
    return pair;
}

static inline lanes accumulate(lanes acc, lanes x, const lanes *w) {
    const lanes sum = {multiply_add(acc.a, x.a, w->a), multiply_add(acc.b, x.b, w->b)};
    return sum;
}

/* 16 words in the order of lanes. */
static inline lanes words_at(const uint32_t *words) {
    const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)words);
    const __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(words + 8));
    const lanes both = {_mm256_permute2x128_si256(low, high, 0x20),
                        _mm256_permute2x128_si256(low, high, 0x31)};
    return both;
}

static inline void prepare(group *g, const midge_conv *p, const constants *from) {
    const __m256i none = _mm256_setzero_si256();
    const __m256i w_zero = _mm256_set1_epi16((int16_t)from->w_zero_point);
    const int8_t *w = from->weight;
    __m256i tap[9];
    for (int i = 0; i < 9; ++i, w += from->pitch)
        tap[i] = _mm256_sub_epi16(widen(w), w_zero);
    g->weight[RIGHT] = interleave(tap[0], tap[3]);
    g->weight[MIDDLE] = interleave(tap[1], tap[4]);
    g->weight[LEFT] = interleave(tap[2], tap[5]);
    g->weight[BELOW] = interleave(tap[6], tap[7]);
    g->weight[BELOW_LEFT] =
        p->stride_x == 1 && p->out >= GROUP ? interleave(none, tap[8]) : interleave(tap[8], none);

    const __m256i minus_zero = _mm256_set1_epi16((int16_t)-p->x_zero_point);
    const lanes zero = {minus_zero, minus_zero};
    g->bias = words_at(from->bias);
    for (int i = 0; i < PAIRS; ++i)
        g->bias = accumulate(g->bias, zero, &g->weight[i]);
    g->padding = _mm256_set1_epi16((int16_t)p->x_zero_point);
    const lanes padding = {g->padding, g->padding};
    g->second = p->left > 0 ? accumulate(g->bias, padding, &g->weight[RIGHT]) : g->bias;
    g->first = accumulate(g->second, padding, &g->weight[MIDDLE]);
    g->first = accumulate(g->first, padding, &g->weight[BELOW]);

    const lanes m = words_at(from->m);
    g->m_a = _mm256_castsi256_ps(m.a);
    g->m_b = _mm256_castsi256_ps(m.b);
    g->high = _mm256_set1_ps((float)p->limits.high);
    g->zero_point = _mm256_set1_epi16((int16_t)p->limits.zero_point);
    g->low = _mm_set1_epi8((int8_t)((int32_t)p->limits.low + p->limits.zero_point));
}

/* Stores the codes of 16 channels. */
static inline void finish(const group *g, lanes acc, int8_t *y) {
    const __m256i a = midge_scale_avx2(acc.a, g->m_a, g->high);
    const __m256i b = midge_scale_avx2(acc.b, g->m_b, g->high);
    const __m256i sum = _mm256_adds_epi16(_mm256_packs_epi32(a, b), g->zero_point);
    const __m128i codes =
        _mm_packs_epi16(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    _mm_storeu_si128((__m128i *)(void *)y, _mm_max_epi8(codes, g->low));
}

/* A column of X: rows 0 and 1 as pairs, row 2 as it is. */
typedef struct column {
    lanes above;
    __m256i below;
} column;

/* The column that begins at these codes. */
static inline column column_of(const int8_t *a, const int8_t *b, const int8_t *c) {
    const column taken = {interleave(widen(a), widen(b)), widen(c)};
    return taken;
}

static inline column padding_column(const group *g) {
    const column taken = {{g->padding, g->padding}, g->padding};
    return taken;
}

/* The windows that a row of stride 1 is in. */
typedef struct windows {
    lanes first, second; /* they hold 2 columns so far, and 1 */
    __m256i before;      /* row 2 of the last column */
} windows;

static inline windows windows_before(const group *g) {
    const windows open = {g->first, g->second, g->padding};
    return open;
}

/* Adds a column and returns the sums of the window that it ends. */
static inline lanes add_column(const group *g, windows *open, column x) {
    const lanes beside = interleave(open->before, x.below);
    const lanes done = accumulate(open->first, x.above, &g->weight[LEFT]);
    open->first = accumulate(open->second, x.above, &g->weight[MIDDLE]);
    open->first = accumulate(open->first, beside, &g->weight[BELOW]);
    open->second = accumulate(g->bias, x.above, &g->weight[RIGHT]);
    open->before = x.below;
    return accumulate(done, beside, &g->weight[BELOW_LEFT]);
}

/* Adds two columns to the window of stride 2 that begins with them, and to the one before, whose
 * sums are returned. */
static inline lanes add_columns(const group *g, lanes *open, column x, column next) {
    const lanes beside = interleave(x.below, next.below);
    const lanes done = accumulate(*open, x.above, &g->weight[LEFT]);
    *open = accumulate(g->bias, x.above, &g->weight[RIGHT]);
    *open = accumulate(*open, next.above, &g->weight[MIDDLE]);
    *open = accumulate(*open, beside, &g->weight[BELOW]);
    return accumulate(done, beside, &g->weight[BELOW_LEFT]);
}

/* The sums of the window of three columns. */
static inline lanes sum_columns(const group *g, column x, column next, column last) {
    lanes sum = accumulate(g->bias, x.above, &g->weight[RIGHT]);
    sum = accumulate(sum, next.above, &g->weight[MIDDLE]);
    sum = accumulate(sum, last.above, &g->weight[LEFT]);
    sum = accumulate(sum, interleave(x.below, next.below), &g->weight[BELOW]);
    return accumulate(sum, interleave(last.below, last.below), &g->weight[BELOW_LEFT]);
}

#endif
