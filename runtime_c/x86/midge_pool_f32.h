/* midge_pool_f32.h - largest or mean elements of windows for AVX2, 32 channels at once. Private.
 *
 * Included before any function, and after midge_x86.h; the file ends with MIDGE_TARGET_END.
 */
#ifndef MIDGE_POOL_F32_H
#define MIDGE_POOL_F32_H

#include "midge_panel_f32.h"
#include "midge_target.h"

MIDGE_TARGET_BEGIN("avx2,fma")
#include MIDGE_INTRINSICS

typedef struct midge_pool_f32 {
    const midge_real *x;
    midge_real *y;
    int counts; /* divide by the number of elements inside x, not by the window's size */
} midge_pool_f32;

/* What a window is to become. A pool of averages starts at 0 and divides. */
typedef struct midge_window_f32 {
    const midge_real *x; /* first tap inside the input */
    size_t rows, columns, x_row, x_pixel;
    __m256 start, divisor;
    __m256i mask; /* of the last channels */
} midge_window_f32;

/* vectors * 8 channels from c on, or those of the mask. vectors, all and max are constants. */
MIDGE_INLINE void midge_pool_lanes(const midge_window_f32 *w, midge_real *y, size_t c,
                                   size_t vectors, int all, int max) {
    __m256 sum[4];
    MIDGE_UNROLL
    for (size_t v = 0; v < vectors; ++v)
        sum[v] = w->start;
    for (size_t ky = 0; ky < w->rows; ++ky) {
        const midge_real *from = w->x + ky * w->x_row + c;
        for (size_t kx = 0; kx < w->columns; ++kx, from += w->x_pixel) {
            MIDGE_UNROLL
            for (size_t v = 0; v < vectors; ++v) {
                const float *at = (const float *)(from + 8 * v);
                const __m256 value = all ? _mm256_loadu_ps(at) : _mm256_maskload_ps(at, w->mask);
                sum[v] = max ? _mm256_max_ps(value, sum[v]) : _mm256_add_ps(sum[v], value);
            }
        }
    }
    MIDGE_UNROLL
    for (size_t v = 0; v < vectors; ++v) {
        float *to = (float *)(y + c + 8 * v);
        sum[v] = max ? sum[v] : _mm256_div_ps(sum[v], w->divisor);
        if (all)
            _mm256_storeu_ps(to, sum[v]);
        else
            _mm256_maskstore_ps(to, w->mask, sum[v]);
    }
}

/* Every channel of one output pixel; `max` is a constant. NaN is never the largest. */
MIDGE_INLINE void midge_pool_pixel(const midge_image *image, const midge_pool_f32 *p,
                                   const midge_pixel *at, int max) {
    const int32_t rows = at->rows.last - at->rows.first;
    const int32_t columns = at->columns.last - at->columns.first;
    const int32_t size = image->kernel_height * image->kernel_width;
    const int32_t n = p->counts ? rows * columns : size;
    const size_t channels = image->channels;
    const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    midge_window_f32 w;
    w.x = p->x + at->x;
    w.rows = (size_t)rows;
    w.columns = (size_t)columns;
    w.x_pixel = (size_t)image->dilation_x * channels;
    w.x_row = (size_t)image->dilation_y * (size_t)image->x_width * channels;
    if (rows > 0 && columns > 0) {
        const int32_t row = at->rows.start + at->rows.first * image->dilation_y;
        const int32_t column = at->columns.start + at->columns.first * image->dilation_x;
        w.x += (size_t)(row * image->x_width + column) * channels;
    }
    w.start = _mm256_set1_ps(max ? midge_float(0xFF800000u) : 0.0f); /* minus infinity */
    w.divisor = _mm256_set1_ps((float)(n > 0 ? n : 1));
    w.mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)(channels % 8)), numbers);
    size_t c = 0;
    for (; c + 32 <= channels; c += 32)
        midge_pool_lanes(&w, p->y + at->y, c, 4, 1, max);
    for (; c + 8 <= channels; c += 8)
        midge_pool_lanes(&w, p->y + at->y, c, 1, 1, max);
    if (c < channels)
        midge_pool_lanes(&w, p->y + at->y, c, 1, 0, max);
}

/* Makes the rows of a strip; `make` writes the channels of one pixel of a midge_pool_f32. */
MIDGE_INLINE void midge_pool_strip(const midge_strip *strip, const midge_op *op,
                                   midge_pixel_function make) {
    const midge_image image = midge_pool_image(op);
    midge_pool_f32 p;
    p.x = midge_reals_at(strip, op, MIDGE_OP_X);
    p.y = midge_reals_at(strip, op, MIDGE_OP_Y);
    p.counts = op->word[MIDGE_POOL_COUNTS] != 0;
    midge_each_pixel(&image, &p, strip, make);
}

#endif
