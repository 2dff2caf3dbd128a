/* midge_depthwise_any.h - depthwise convolution by any window, 16 channels of a pixel at once.
 * Private.
 *
 * Codes less their zero point and weights are widened to 16 bits and interleaved in pairs of taps.
 */
#ifndef MIDGE_DEPTHWISE_ANY_H
#define MIDGE_DEPTHWISE_ANY_H

#include "midge_depthwise_group.h"

/* The window above one pixel: row 0 of the image is row `image` of X. */
typedef struct window {
    midge_span rows, columns;
    uint32_t image;
} window;

/* Sums of channels 0..3 and 8..11, and of 4..7 and 12..15. */
typedef struct pair_sums {
    __m256i a, b;
} pair_sums;

/* 16 codes less their zero point. */
static inline __m256i centred(const int8_t *x, __m256i zero) {
    const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)x);
    return _mm256_sub_epi16(_mm256_cvtepi8_epi16(codes), zero);
}

/* Adds x * w + next_x * next_w. */
static inline void add_taps(pair_sums *acc, __m256i x, __m256i next_x, __m256i w, __m256i next_w) {
    const __m256i a =
        _mm256_madd_epi16(_mm256_unpacklo_epi16(x, next_x), _mm256_unpacklo_epi16(w, next_w));
    const __m256i b =
        _mm256_madd_epi16(_mm256_unpackhi_epi16(x, next_x), _mm256_unpackhi_epi16(w, next_w));
    acc->a = _mm256_add_epi32(acc->a, a);
    acc->b = _mm256_add_epi32(acc->b, b);
}

/* Channels c..c + 15 of one pixel. */
static inline void window_of_group(const midge_conv *p, const window *at, size_t c, int8_t *y,
                                   int32_t w_zero_point) {
    const __m256i zero = _mm256_set1_epi16((int16_t)p->x_zero_point);
    const __m256i w_zero = _mm256_set1_epi16((int16_t)w_zero_point);
    const __m256i none = _mm256_setzero_si256();
    const int32_t first = at->columns.first, last = at->columns.last;
    const size_t next = (size_t)p->dilation_x * p->channels;
    pair_sums acc = {none, none};
    for (int32_t ky = at->rows.first; ky < at->rows.last; ++ky) {
        const uint32_t row = at->image + (uint32_t)(at->rows.start + ky * p->dilation_y);
        const size_t pixel = (size_t)(at->columns.start + first * p->dilation_x);
        const int8_t *x = midge_row(&p->x, row) + pixel * p->channels + c;
        const int8_t *w = p->weight + (size_t)(ky * p->kernel_width + first) * p->out + c;
        int32_t kx = first;
        for (; kx + 2 <= last; kx += 2, x += 2 * next, w += 2 * p->out)
            add_taps(&acc, centred(x, zero), centred(x + next, zero), centred(w, w_zero),
                     centred(w + p->out, w_zero));
        if (kx < last)
            add_taps(&acc, centred(x, zero), none, centred(w, w_zero), none);
    }
    const __m256i low = _mm256_permute2x128_si256(acc.a, acc.b, 0x20);
    const __m256i high = _mm256_permute2x128_si256(acc.a, acc.b, 0x31);
    const __m128i codes = midge_requantize_panel(low, high, p->bias + c, p->m + c, &p->limits);
    _mm_storeu_si128((__m128i *)(void *)(y + c), codes);
}

/* Rows of Y of at least 16 channels; of fewer than 16 left over, some are made twice. */
static inline void rows_of_any(const midge_conv *p, uint32_t first, uint32_t last,
                               int32_t w_zero_point) {
    window at;
    for (uint32_t row = first; row < last; ++row) {
        int8_t *y = midge_row(&p->y, row);
        at.image = row / p->y_height * (uint32_t)p->x_height;
        at.rows = midge_conv_rows(p, row % p->y_height);
        for (int32_t ox = 0; ox < p->y_width; ++ox, y += p->out) {
            at.columns = midge_conv_columns(p, ox);
            for (size_t c = 0; c < p->out; c += GROUP) {
                c = c + GROUP <= p->out ? c : p->out - GROUP;
                window_of_group(p, &at, c, y, w_zero_point);
            }
        }
    }
}

#endif
