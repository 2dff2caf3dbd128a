/* midge_max_pool_s8_avx2.c - largest code of each window, 32 or 16 channels at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_avx2.h"

#define WIDE 32  /* channels */
#define GROUP 16 /* where there are fewer than WIDE */

/* Where one output pixel comes from: row 0 of the image is row `image` of X. */
typedef struct window {
    midge_span rows, columns;
    uint32_t image;
} window;

/* Channel c of the window's pixel in row ky and its first column. */
static inline const int8_t *first_pixel(const midge_pool *p, const window *w, int32_t ky,
                                        size_t c) {
    const int32_t y = w->rows.start + ky * p->dilation_y;
    const int32_t x = w->columns.start + w->columns.first * p->dilation_x;
    return midge_row(&p->x, w->image + (uint32_t)y) + (size_t)x * p->channels + c;
}

/* Channels c..c + 31. */
static inline void max_32(const midge_pool *p, const window *w, size_t c, int8_t *y) {
    const size_t step = (size_t)p->dilation_x * p->channels;
    __m256i best = _mm256_set1_epi8(-128);
    for (int32_t ky = w->rows.first; ky < w->rows.last; ++ky) {
        const int8_t *x = first_pixel(p, w, ky, c);
        for (int32_t kx = w->columns.first; kx < w->columns.last; ++kx, x += step)
            best = _mm256_max_epi8(best, _mm256_loadu_si256((const __m256i *)(const void *)x));
    }
    _mm256_storeu_si256((__m256i *)(void *)(y + c), best);
}

/* Channels c..c + 15. */
static inline void max_16(const midge_pool *p, const window *w, size_t c, int8_t *y) {
    const size_t step = (size_t)p->dilation_x * p->channels;
    __m128i best = _mm_set1_epi8(-128);
    for (int32_t ky = w->rows.first; ky < w->rows.last; ++ky) {
        const int8_t *x = first_pixel(p, w, ky, c);
        for (int32_t kx = w->columns.first; kx < w->columns.last; ++kx, x += step)
            best = _mm_max_epi8(best, _mm_loadu_si128((const __m128i *)(const void *)x));
    }
    _mm_storeu_si128((__m128i *)(void *)(y + c), best);
}

/* Every channel of one pixel; where fewer than 16 are left over, some are made twice. */
static inline void max_pixel(const midge_pool *p, const window *w, int8_t *y) {
    size_t c = 0;
    for (; c + WIDE <= p->channels; c += WIDE)
        max_32(p, w, c, y);
    for (; c < p->channels; c += GROUP) {
        c = c + GROUP <= p->channels ? c : p->channels - GROUP;
        max_16(p, w, c, y);
    }
}

void midge_max_pool_s8_avx2(const midge_strip *strip, const midge_op *op) {
    const midge_pool p = midge_pool_at(strip, op);
    if (p.channels < GROUP) {
        midge_max_pool_s8(strip, op);
        return;
    }
    window w;
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        int8_t *y = midge_row(&p.y, row);
        w.image = row / p.y_height * (uint32_t)p.x_height;
        w.rows = midge_pool_rows(&p, op, row % p.y_height);
        for (int32_t ox = 0; ox < p.y_width; ++ox, y += p.channels) {
            w.columns = midge_pool_columns(&p, op, ox);
            max_pixel(&p, &w, y);
        }
    }
}

MIDGE_TARGET_END

#endif
