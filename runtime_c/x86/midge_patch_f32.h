/* midge_patch_f32.h - float convolutions, patch by patch. Private.
 *
 * The pixels of a patch have the same taps inside the input: one patch is the interior of an image,
 * others are its edges and corners, and padding costs nothing.
 *
 * Included as midge_tile_f32.h is.
 */
#ifndef MIDGE_PATCH_F32_H
#define MIDGE_PATCH_F32_H

#include "midge_tile_f32.h"

/* The window above position `at` of an axis, clipped; how many of the next ones, below `end`, have
 * the same taps. */
typedef struct midge_stretch {
    midge_span span;
    int32_t count;
} midge_stretch;

static inline midge_stretch midge_stretch_at(int32_t at, int32_t end, int32_t stride, int32_t pad,
                                             int32_t taps, int32_t dilation, int32_t size) {
    midge_stretch s;
    s.span = midge_clip(at * stride - pad, taps, dilation, size);
    for (s.count = 1; at + s.count < end; ++s.count) {
        const midge_span next = midge_clip((at + s.count) * stride - pad, taps, dilation, size);
        if (next.first != s.span.first || next.last != s.span.last)
            break;
    }
    return s;
}

/* Makes a band: rows of one image whose windows have the same rows of taps inside it. x of the band
 * is the image's first element. */
typedef void (*midge_band_function)(const midge_image *image, const void *layer,
                                    const midge_patch *band, midge_span rows);

/* Calls `make` for every band of rows first..last - 1 of all images. */
MIDGE_INLINE void midge_each_band(const midge_image *p, const void *layer, const midge_real *x,
                                  midge_real *y, const midge_strip *strip,
                                  midge_band_function make) {
    const uint32_t height = (uint32_t)p->y_height;
    const size_t x_row = (size_t)p->x_width * p->channels;
    midge_patch band;
    band.width = (size_t)p->y_width;
    band.x_row = (size_t)p->stride_y * x_row;
    band.x_pixel = (size_t)p->stride_x * p->channels;
    band.y_row = band.width * p->out;
    band.y_pixel = p->out;
    for (uint32_t row = strip->first; row < strip->last; row += (uint32_t)band.height) {
        const int32_t oy = (int32_t)(row % height), left = (int32_t)(strip->last - row);
        const int32_t end = left < p->y_height - oy ? oy + left : p->y_height;
        const midge_stretch rows = midge_stretch_at(oy, end, p->stride_y, p->top, p->kernel_height,
                                                    p->dilation_y, p->x_height);
        band.height = (size_t)rows.count;
        band.x = x + (size_t)(row / height) * (size_t)p->x_height * x_row;
        band.y = y + row * band.y_row;
        make(p, layer, &band, rows.span);
    }
}

/* The columns of a band from ox on whose windows have the same columns of taps inside the image. */
static inline midge_stretch midge_columns_at(const midge_image *p, int32_t ox) {
    return midge_stretch_at(ox, p->y_width, p->stride_x, p->left, p->kernel_width, p->dilation_x,
                            p->x_width);
}

/* Elements from the first one of an image to the first tap of a window that is inside it; 0 where
 * there is none. */
static inline size_t midge_first_tap(const midge_image *p, midge_span rows, midge_span columns) {
    if (rows.first == rows.last || columns.first == columns.last)
        return 0;
    const int32_t row = rows.start + rows.first * p->dilation_y;
    const int32_t column = columns.start + columns.first * p->dilation_x;
    return (size_t)(row * p->x_width + column) * p->channels;
}

/* Every channel of a patch of a convolution: of a band, the columns from ox on that are alike. */
MIDGE_INLINE void midge_conv_patch(const midge_image *image, const midge_layer_f32 *p,
                                   midge_patch patch, midge_span rows, midge_span columns,
                                   int codes) {
    const size_t group_in = image->channels / image->groups;
    const size_t group_out = image->out / image->groups;
    const size_t width = (size_t)image->kernel_width;
    midge_taps t;
    t.rows = (size_t)(rows.last - rows.first);
    t.columns = (size_t)(columns.last - columns.first);
    t.count = group_in;
    t.x_column = (size_t)image->dilation_x * image->channels;
    t.x_row = (size_t)image->dilation_y * (size_t)image->x_width * image->channels;
    t.w_column = group_in;
    t.w_row = width * group_in;
    t.w = ((size_t)rows.first * width + (size_t)columns.first) * group_in;
    if (image->groups == 1 && image->dilation_x == 1) { /* taps of a row are neighbours */
        t.count *= t.columns;
        t.columns = t.columns != 0;
    }
    patch.x += midge_first_tap(image, rows, columns);
    for (size_t g = 0; g < image->groups; ++g, patch.x += group_in)
        midge_patch_channels(p, &t, &patch, g * group_out, (g + 1) * group_out, codes);
}

/* A band of a convolution. */
MIDGE_INLINE void midge_conv_band(const midge_image *image, const midge_layer_f32 *p,
                                  const midge_patch *band, midge_span rows, int codes) {
    midge_patch patch = *band;
    for (int32_t ox = 0; ox < image->y_width; ox += (int32_t)patch.width) {
        const midge_stretch columns = midge_columns_at(image, ox);
        patch.width = (size_t)columns.count;
        patch.y = band->y + (size_t)ox * image->out;
        midge_conv_patch(image, p, patch, rows, columns.span, codes);
    }
}

static inline void midge_real_band(const midge_image *image, const void *layer,
                                   const midge_patch *band, midge_span rows) {
    midge_conv_band(image, (const midge_layer_f32 *)layer, band, rows, 0);
}

static inline void midge_code_band(const midge_image *image, const void *layer,
                                   const midge_patch *band, midge_span rows) {
    midge_conv_band(image, (const midge_layer_f32 *)layer, band, rows, 1);
}

/* The rows of a strip of a convolution. `codes` is a constant. */
MIDGE_INLINE void midge_conv_strip(const midge_strip *strip, const midge_op *op, int codes) {
    const midge_image image = midge_conv_image(op);
    const size_t taps = (size_t)(image.kernel_height * image.kernel_width);
    const midge_layer_f32 layer =
        midge_read_layer(strip, op, taps * (image.channels / image.groups), image.out, codes);
    midge_each_band(&image, &layer, layer.x, layer.y, strip,
                    codes ? midge_code_band : midge_real_band);
}

#endif
