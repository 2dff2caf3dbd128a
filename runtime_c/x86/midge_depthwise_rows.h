/* midge_depthwise_rows.h - depthwise 3 x 3 convolution, 16 channels of a pixel at once. Private.
 *
 * Included after midge_depthwise_ymm.h or midge_depthwise_zmm.h, which hold
 *
 *     lanes     sums of 16 channels
 *     column    a column of X in three rows, ready to be multiplied
 *     group     weights and what else 16 channels need; bias is the lanes that sums start from
 *     windows   the windows that a row of stride 1 is in
 *
 * A column is made once for the three pixels (two with stride 2) whose windows it is in, and adds
 * to each what it contributes.
 */
#ifndef MIDGE_DEPTHWISE_ROWS_H
#define MIDGE_DEPTHWISE_ROWS_H

#include "midge_depthwise_group.h"

#define BLOCK 16384    /* bytes of X that should stay in the first-level cache */
#define LINES 8        /* most rows of Y in a block */
#define CACHE_LINE 64u /* bytes */

/* A row of Y and the three rows of X below it: where the next column lies, and how far the one
 * after it is from there; 0 bytes for a row of padding. */
typedef struct line {
    const int8_t *row[3];
    size_t step[3];
    int8_t *y;
} line;

static inline column next_column(line *x) {
    const column taken = column_of(x->row[0], x->row[1], x->row[2]);
    for (int i = 0; i < 3; ++i)
        x->row[i] += x->step[i];
    return taken;
}

/* 16 channels of one row of Y, stride 1. Column j, counted from the first of padding, ends the
 * window of pixel j - 2. */
static inline void row_of_stride_1(const group *g, const midge_conv *p, line at) {
    const size_t pitch = p->out;
    const int32_t all = p->y_width + 2, inside = p->left + p->x_width;
    const int32_t last = inside < all ? inside : all;
    windows open = windows_before(g);
    int32_t j = p->left;
    for (; j < 2 && j < last; ++j)
        add_column(g, &open, next_column(&at));
    for (; j < last; ++j, at.y += pitch)
        finish(g, add_column(g, &open, next_column(&at)), at.y);
    for (; j < all; ++j) {
        const lanes done = add_column(g, &open, padding_column(g));
        if (j >= 2) {
            finish(g, done, at.y);
            at.y += pitch;
        }
    }
}

/* 16 channels of one row of Y, stride 2. Column 2 * i ends the window of pixel i - 1; the column
 * behind it counts nothing there. */
static inline void row_of_stride_2(const group *g, const midge_conv *p, line at) {
    const size_t pitch = p->out;
    const int32_t all = 2 * p->y_width + 1, inside = p->left + p->x_width;
    const column none = padding_column(g);
    lanes open = g->bias;
    column x = p->left > 0 ? none : next_column(&at);
    add_columns(g, &open, x, p->left > 1 || inside < 2 ? none : next_column(&at));
    int32_t j = 2;
    for (; j < all && j + 1 < inside; j += 2, at.y += pitch) {
        x = next_column(&at);
        finish(g, add_columns(g, &open, x, next_column(&at)), at.y);
    }
    for (; j < all; j += 2, at.y += pitch) {
        x = j < inside ? next_column(&at) : none;
        finish(g, add_columns(g, &open, x, none), at.y);
    }
}

/* Row `row` of Y and the rows of X below it, channel 0. */
static line line_of(const midge_conv *p, uint32_t row, const int8_t *padding) {
    const uint32_t image = row / p->y_height * (uint32_t)p->x_height;
    const int32_t start = (int32_t)(row % p->y_height) * p->stride_y - p->top;
    line found;
    found.y = midge_row(&p->y, row);
    for (int32_t i = 0; i < 3; ++i) {
        const int is_inside = start + i >= 0 && start + i < p->x_height;
        found.row[i] = is_inside ? midge_row(&p->x, image + (uint32_t)(start + i)) : padding;
        found.step[i] = is_inside ? p->channels : 0;
    }
    return found;
}

/* The same from channel c on. */
static inline line line_from(const line *from, size_t c) {
    line at = *from;
    for (int i = 0; i < 3; ++i)
        at.row[i] += at.step[i] ? c : 0;
    at.y += c;
    return at;
}

/* At most LINES rows of Y, 16 channels at once; of fewer than 16 left over, some are made twice. */
static void wide_rows(const midge_conv *p, uint32_t first, uint32_t count, const int8_t *padding,
                      int32_t w_zero_point) {
    line lines[LINES];
    group g;
    for (uint32_t i = 0; i < count; ++i)
        lines[i] = line_of(p, first + i, padding);
    for (size_t c = 0; c < p->out; c += GROUP) {
        c = c + GROUP <= p->out ? c : p->out - GROUP;
        const constants own = {p->bias + c, p->m + c, p->weight + c, p->out, w_zero_point};
        prepare(&g, p, &own);
        if (p->stride_x == 1)
            for (uint32_t i = 0; i < count; ++i)
                row_of_stride_1(&g, p, line_from(&lines[i], c));
        else
            for (uint32_t i = 0; i < count; ++i)
                row_of_stride_2(&g, p, line_from(&lines[i], c));
    }
}

/* How many rows of Y to make for one group of channels before the next: what they read stays in
 * the cache while every channel of a line of it is used. */
static uint32_t rows_of_block(const midge_conv *p) {
    const uint32_t bytes = p->channels < CACHE_LINE ? (uint32_t)p->channels : CACHE_LINE;
    const uint32_t row = (uint32_t)(p->x_width * p->stride_y) * bytes;
    const uint32_t rows = row < BLOCK ? BLOCK / row : 1;
    return rows < LINES ? rows : LINES;
}

#endif
