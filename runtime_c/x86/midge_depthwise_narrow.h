/* midge_depthwise_narrow.h - depthwise 3 x 3 convolution of fewer than 16 channels. Private.
 *
 * Included after midge_depthwise_rows.h. Neighbouring pixels lie side by side: with stride 1 as
 * many of them as 16 bytes hold are made at once.
 */
#ifndef MIDGE_DEPTHWISE_NARROW_H
#define MIDGE_DEPTHWISE_NARROW_H

#include "midge_depthwise_any.h"

#define WINDOW 64 /* bytes of a row that pixels made at once read: 2 * 15 + 16 at most */

/* Tells the compiler that the constants of a group may have changed: each is then read where it is
 * multiplied by, in place of being lifted out of the loop over pixels and spilled. */
#ifdef _MSC_VER
#define READ_AGAIN(g) ((void)(g))
#else
#define READ_AGAIN(g) __asm__ volatile("" : : "r"(g) : "memory")
#endif

/* What does not change from row to row. */
typedef struct narrow {
    group g;
    int32_t pixels; /* made at once */
    size_t channels;
} narrow;

/* Repeats the constants of every channel for each pixel; further lanes make nothing. */
static void prepare_narrow(narrow *n, const midge_conv *p, int32_t w_zero_point) {
    uint32_t words[2 * GROUP] = {0};
    int8_t weight[9 * GROUP] = {0};
    const constants own = {words, words + GROUP, weight, GROUP, w_zero_point};
    n->channels = p->out;
    n->pixels = p->stride_x == 1 ? (int32_t)(GROUP / p->out) : 1;
    for (size_t i = 0; i < (size_t)n->pixels * p->out; ++i) {
        const size_t c = i % p->out;
        words[i] = p->bias[c];
        words[GROUP + i] = p->m[c];
        for (size_t tap = 0; tap < 9; ++tap)
            weight[tap * GROUP + i] = p->weight[tap * p->out + c];
    }
    prepare(&n->g, p, &own);
}

/* Makes the pixels whose first windows begin at these rows. */
static inline void make_pixels(const narrow *n, line at) {
    column x[3];
    for (size_t i = 0; i < 3; ++i) {
        const size_t next = i * n->channels;
        x[i] = column_of(at.row[0] + next, at.row[1] + next, at.row[2] + next);
    }
    finish(&n->g, sum_columns(&n->g, x[0], x[1], x[2]), at.y);
}

/* Copies `count` bytes, at most WINDOW. */
static inline void copy_bytes(int8_t *to, const int8_t *from, size_t count) {
    if (count < 16) {
        memcpy(to, from, count);
        return;
    }
    for (size_t i = 0;; i = i + 32 <= count ? i + 16 : count - 16) { /* the last ones overlap */
        const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm_storeu_si128((__m128i *)(void *)(to + i), codes);
        if (i + 16 == count)
            return;
    }
}

/* Makes the pixels from ox on through copies of what they read and write. */
static void make_copied(const narrow *n, const midge_conv *p, const line *from, int32_t ox,
                        const int8_t *padding) {
    int8_t copy[3][WINDOW], codes[GROUP];
    const line at = {{copy[0], copy[1], copy[2]}, {0, 0, 0}, codes};
    const int32_t left = p->y_width - ox, x = ox * p->stride_x - p->left;
    const int32_t first = x < 0 ? 0 : x, end = x + n->pixels + 2; /* columns inside of X */
    const int32_t count = (end < p->x_width ? end : p->x_width) - first;
    for (int i = 0; i < 3; ++i) {
        memcpy(copy[i], padding, WINDOW);
        if (count > 0 && from->step[i])
            copy_bytes(copy[i] + (size_t)(first - x) * n->channels,
                       from->row[i] + (size_t)first * n->channels, (size_t)count * n->channels);
    }
    make_pixels(n, at);
    copy_bytes(from->y + (size_t)ox * n->channels, codes,
               (size_t)(left < n->pixels ? left : n->pixels) * n->channels);
}

/* Where the window of pixel ox begins; steps are columns. */
static inline line pixel_at(const midge_conv *p, const line *from, int32_t ox) {
    line at = *from;
    for (int i = 0; i < 3; ++i)
        at.row[i] += at.step[i] * (size_t)(ox * p->stride_x - p->left);
    at.y += (size_t)ox * p->out;
    return at;
}

/* Makes pixels from ox on, two columns to the next ones, and returns the first that is not made:
 * the last or one more. */
static inline int32_t make_chain(const narrow *n, const midge_conv *p, const line *from, int32_t ox,
                                 int32_t last) {
    const int32_t pixels = n->pixels;
    const size_t next = (size_t)pixels * n->channels;
    line at = pixel_at(p, from, ox);
    lanes open = n->g.bias;
    column x = next_column(&at);
    add_columns(&n->g, &open, x, next_column(&at));
    for (; ox + pixels <= last; ox += pixels, at.y += next) {
        READ_AGAIN(&n->g);
        x = next_column(&at);
        finish(&n->g, add_columns(&n->g, &open, x, next_column(&at)), at.y);
    }
    return ox;
}

/* One row of Y. Where 16 bytes lie inside of the rows they are read and written there: what is
 * written behind the last of the pixels is made later. */
static void narrow_row(const narrow *n, const midge_conv *p, const line *from,
                       const int8_t *padding) {
    const int32_t channels = (int32_t)n->channels, spread = (GROUP + channels - 1) / channels;
    const int32_t room = p->x_width - 2 - spread + p->left, by_y = p->y_width - spread;
    const int32_t by_x = room < 0 ? -1 : room / p->stride_x, last = by_x < by_y ? by_x : by_y;
    int32_t ox = 0;
    for (; ox < p->y_width && ox * p->stride_x < p->left; ox += n->pixels)
        make_copied(n, p, from, ox, padding);
    if (n->pixels * p->stride_x == 2 && ox <= last)
        ox = make_chain(n, p, from, ox, last);
    for (; ox <= last; ox += n->pixels)
        make_pixels(n, pixel_at(p, from, ox));
    for (; ox < p->y_width; ox += n->pixels)
        make_copied(n, p, from, ox, padding);
}

static void narrow_rows(const midge_conv *p, uint32_t first, uint32_t last, const int8_t *padding,
                        int32_t w_zero_point) {
    narrow n;
    prepare_narrow(&n, p, w_zero_point);
    for (uint32_t row = first; row < last; ++row) {
        const line from = line_of(p, row, padding);
        narrow_row(&n, p, &from, padding);
    }
}

/* The whole of a kernel. Several channels of Y for one of X, and fewer than 16 channels with
 * another window than 3 x 3, are the portable kernel's. */
static inline void depthwise_rows(const midge_strip *strip, const midge_op *op,
                                  int32_t w_zero_point, midge_kernel portable) {
    const midge_conv p = midge_conv_at(strip, op);
    const int is_3_by_3 = p.kernel_height == 3 && p.kernel_width == 3 && p.dilation_y == 1 &&
                          p.dilation_x == 1 && p.stride_x <= 2 && p.left <= 2;
    if (p.channels != p.out || (p.out < GROUP && !is_3_by_3)) {
        portable(strip, op);
        return;
    }
    if (!is_3_by_3) {
        rows_of_any(&p, strip->first, strip->last, w_zero_point);
        return;
    }
    int8_t padding[WINDOW];
    memset(padding, p.x_zero_point, sizeof padding);
    if (p.out < GROUP) {
        narrow_rows(&p, strip->first, strip->last, padding, w_zero_point);
        return;
    }
    const uint32_t most = rows_of_block(&p);
    for (uint32_t row = strip->first; row < strip->last; row += most) {
        const uint32_t left = strip->last - row;
        wide_rows(&p, row, left < most ? left : most, padding, w_zero_point);
    }
}

#endif
