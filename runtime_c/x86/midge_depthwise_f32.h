/* midge_depthwise_f32.h - float convolutions with one group per input channel, a vector of channels
 * at once. Private.
 *
 * Included as midge_floats.h is.
 */
#ifndef MIDGE_DEPTHWISE_F32_H
#define MIDGE_DEPTHWISE_F32_H

#include "midge_patch_f32.h"

#define MIDGE_CACHED                                                                               \
    4096 /* elements of x that stay in a first-level cache between blocks of lanes */

/* Which channels of a vector there are. */
typedef struct lanes {
    midge_mask mask;
    int all;
} lanes;

/* A layer and a vector of its channels. */
typedef struct depthwise {
    const midge_real *x, *bias, *weight;
    midge_real *y;
    midge_limits limits;
} depthwise;

/* The taps of a window that are inside the input, in elements. */
typedef struct taps {
    size_t rows, columns, x_row, x_column, w_row, w_column;
} taps;

/* The pixels of a row whose windows are 3 taps wide: elements from the image's first one to their
 * first taps. */
typedef struct edges {
    size_t left, inside, right;
    size_t count; /* of those inside */
    int has_left, has_right;
} edges;

static inline lanes lanes_of(size_t count) {
    const lanes l = {midge_first(count), count >= MIDGE_FLOATS};
    return l;
}

MIDGE_INLINE midge_floats load(const midge_real *from, const lanes *l, int all) {
    return all ? midge_load(from, MIDGE_FLOATS) : midge_load_some(from, l->mask);
}

/* Limits a sum and stores it. NaN passes. */
MIDGE_INLINE void store(midge_real *y, midge_floats sum, midge_floats low, midge_floats high,
                        const lanes *l, int all) {
    sum = midge_smaller(high, midge_larger(low, sum));
    if (all)
        midge_store(y, sum, MIDGE_FLOATS);
    else
        midge_store_some(y, sum, l->mask);
}

/* One pixel: h rows of w taps from x on; weights lie 3 to a row. h, w and all are constants. */
MIDGE_INLINE midge_floats window(const midge_real *x, const taps *t, const midge_floats *weight,
                                 midge_floats bias, const lanes *l, size_t h, size_t w, int all) {
    midge_floats sum[3] = {bias, midge_same(0.0f), midge_same(0.0f)};
    MIDGE_EACH(k, h * w) {
        const midge_floats v = load(x + k / w * t->x_row + k % w * t->x_column, l, all);
        sum[k / w] = midge_fma(v, weight[k / w * 3 + k % w], sum[k / w]);
    }
    if (h > 1)
        sum[0] = midge_plus(sum[0], sum[1]);
    return h > 2 ? midge_plus(sum[0], sum[2]) : sum[0];
}

/* A vector of channels of a band by windows 3 taps wide, the weights held in registers: perhaps a
 * pixel at the left edge, those inside, perhaps one at the right edge. h and all are constants. */
MIDGE_INLINE void held(const depthwise *p, const midge_patch *band, const taps *t, const edges *e,
                       const lanes *l, size_t h, int all) {
    const midge_floats bias = load(p->bias, l, all);
    const midge_floats low = midge_same(p->limits.low), high = midge_same(p->limits.high);
    midge_floats weight[9];
    MIDGE_EACH(i, h * 3)
    weight[i] = load(p->weight + i / 3 * t->w_row + i % 3 * t->w_column, l, all);
    for (size_t row = 0; row < band->height; ++row) {
        const midge_real *from = band->x + row * band->x_row, *x = from + e->inside;
        midge_real *y = band->y + row * band->y_row;
        if (e->has_left) {
            const midge_floats sum = window(from + e->left, t, weight + 1, bias, l, h, 2, all);
            store(y, sum, low, high, l, all);
            y += band->y_pixel;
        }
        for (size_t i = e->count; i > 0; --i, x += band->x_pixel, y += band->y_pixel)
            store(y, window(x, t, weight, bias, l, h, 3, all), low, high, l, all);
        if (e->has_right)
            store(y, window(from + e->right, t, weight, bias, l, h, 2, all), low, high, l, all);
    }
}

/* n pixels with any window. n and all are constants. */
MIDGE_INLINE void any(const depthwise *p, const midge_pixels *pixels, const taps *t, const lanes *l,
                      size_t n, int all) {
    const midge_floats low = midge_same(p->limits.low), high = midge_same(p->limits.high);
    const midge_floats bias = load(p->bias, l, all);
    midge_floats sum[4];
    MIDGE_EACH(i, n)
    sum[i] = bias;
    for (size_t ky = 0; ky < t->rows; ++ky) {
        for (size_t kx = 0; kx < t->columns; ++kx) {
            const size_t at = ky * t->x_row + kx * t->x_column;
            const midge_floats w = load(p->weight + ky * t->w_row + kx * t->w_column, l, all);
            MIDGE_EACH(i, n)
            sum[i] = midge_fma(load(pixels->x[i] + at, l, all), w, sum[i]);
        }
    }
    MIDGE_EACH(i, n)
    store(pixels->y[i], sum[i], low, high, l, all);
}

/* A vector of channels of a patch; `all` is a constant. */
MIDGE_INLINE void block(const depthwise *p, const midge_patch *patch, const taps *t, const lanes *l,
                        int all) {
    midge_walk walk = {patch->x, patch->y, 0, patch->height * patch->width};
    midge_pixels pixels;
    while (walk.left >= 4) {
        midge_take(patch, &walk, &pixels, 4);
        any(p, &pixels, t, l, 4, all);
    }
    while (walk.left != 0) {
        midge_take(patch, &walk, &pixels, 1);
        any(p, &pixels, t, l, 1, all);
    }
}

/* A vector of channels of a band by windows 3 taps wide; `all` is a constant. */
MIDGE_INLINE void held_block(const depthwise *p, const midge_patch *band, const taps *t,
                             const edges *e, const lanes *l, int all) {
    if (t->rows == 3)
        held(p, band, t, e, l, 3, all);
    else if (t->rows == 2)
        held(p, band, t, e, l, 2, all);
    else
        held(p, band, t, e, l, 1, all);
}

/* The taps of a window, `rows` of them being inside the input. */
static taps taps_of(const midge_image *image, midge_span rows, midge_span columns) {
    taps t;
    t.rows = (size_t)(rows.last - rows.first);
    t.columns = (size_t)(columns.last - columns.first);
    t.x_column = (size_t)image->dilation_x * image->channels;
    t.x_row = (size_t)(image->dilation_y * image->x_width) * image->channels;
    t.w_column = image->out;
    t.w_row = (size_t)image->kernel_width * image->out;
    return t;
}

/* Every channel of a patch, or of a band with edges `e`. */
static void make_channels(const midge_image *image, const depthwise *layer, midge_patch patch,
                          midge_span rows, midge_span columns, const edges *e) {
    const taps t = taps_of(image, rows, columns);
    depthwise p = *layer;
    p.weight += (size_t)rows.first * t.w_row + (size_t)columns.first * t.w_column;
    for (size_t c = 0; c < image->out; c += MIDGE_FLOATS) {
        const lanes l = lanes_of(image->out - c);
        if (e && l.all)
            held_block(&p, &patch, &t, e, &l, 1);
        else if (e)
            held_block(&p, &patch, &t, e, &l, 0);
        else if (l.all)
            block(&p, &patch, &t, &l, 1);
        else
            block(&p, &patch, &t, &l, 0);
        p.bias += MIDGE_FLOATS;
        p.weight += MIDGE_FLOATS;
        patch.x += MIDGE_FLOATS;
        patch.y += MIDGE_FLOATS;
    }
}

/* Finds the edges of a band; returns whether a kernel for windows 3 taps wide can make it. */
static int find_edges(const midge_image *image, midge_span rows, edges *e) {
    const int32_t size = rows.last - rows.first;
    if (image->kernel_width != 3 || size < 1 || size > 3)
        return 0;
    midge_stretch s = midge_columns_at(image, 0);
    int32_t ox = 0;
    e->has_left = s.span.first == 1 && s.span.last == 3 && s.count == 1;
    if (e->has_left) {
        e->left = midge_first_tap(image, rows, s.span);
        if (++ox == image->y_width)
            return 0;
        s = midge_columns_at(image, ox);
    }
    if (s.span.first != 0 || s.span.last != 3)
        return 0;
    e->inside = midge_first_tap(image, rows, s.span);
    e->count = (size_t)s.count;
    ox += s.count;
    e->has_right = ox < image->y_width;
    if (e->has_right) {
        s = midge_columns_at(image, ox);
        e->right = midge_first_tap(image, rows, s.span);
        return s.span.first == 0 && s.span.last == 2 && ox + 1 == image->y_width;
    }
    return 1;
}

static void make_band(const midge_image *image, const void *layer, const midge_patch *band,
                      midge_span rows) {
    const depthwise *p = (const depthwise *)layer;
    const midge_span whole = {0, 3, 0};
    midge_patch patch = *band;
    edges e = {0, 0, 0, 0, 0, 0};
    if (find_edges(image, rows, &e)) {
        const size_t most = 1 + MIDGE_CACHED / band->x_row;
        for (size_t row = 0; row < band->height; row += most) {
            const size_t left = band->height - row;
            patch.x = band->x + row * band->x_row;
            patch.y = band->y + row * band->y_row;
            patch.height = left < most ? left : most;
            make_channels(image, p, patch, rows, whole, &e);
        }
        return;
    }
    for (int32_t ox = 0; ox < image->y_width; ox += (int32_t)patch.width) {
        const midge_stretch columns = midge_columns_at(image, ox);
        patch.width = (size_t)columns.count;
        patch.x = band->x + midge_first_tap(image, rows, columns.span);
        patch.y = band->y + (size_t)ox * image->out;
        make_channels(image, p, patch, rows, columns.span, NULL);
    }
}

/* The rows of a strip. Returns 0 where several channels are made from one: it makes nothing then.
 */
static int midge_depthwise_rows(const midge_strip *strip, const midge_op *op) {
    const midge_image image = midge_conv_image(op);
    depthwise p;
    if (image.out != image.channels)
        return 0;
    p.x = midge_reals_at(strip, op, MIDGE_OP_X);
    p.y = midge_reals_at(strip, op, MIDGE_OP_Y);
    p.bias = midge_constants(strip, op->word[MIDGE_OP_DATA]);
    p.weight = p.bias + image.out;
    p.limits = midge_read_limits(op);
    midge_each_band(&image, &p, p.x, p.y, strip, make_band);
    return 1;
}

#endif
