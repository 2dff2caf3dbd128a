/* midge_max_pool_s8_avx2.c - largest code of each window, 32 or 16 channels at once. */
#include "midge_x86.h"

#if MIDGE_X86

#include "midge_avx2.h"

/* Where one output pixel comes from: row 0 of the image is row `image` of X. */
typedef struct window {
    const midge_rows *x;
    midge_span rows, columns;
    uint32_t image;
    size_t channels;
} window;

/* The first channel of the window's pixel in row ky and its first column. */
static inline const int8_t *first_pixel(const window *w, int32_t ky) {
    const int8_t *row = midge_row(w->x, w->image + (uint32_t)(w->rows.start + ky));
    return row + (size_t)(w->columns.start + w->columns.first) * w->channels;
}

/* Channels c..c + 31. */
static inline void max_32(const window *w, size_t c, int8_t *y) {
    __m256i best = _mm256_set1_epi8(-128);
    for (int32_t ky = w->rows.first; ky < w->rows.last; ++ky) {
        const int8_t *from = first_pixel(w, ky) + c;
        for (int32_t kx = w->columns.first; kx < w->columns.last; ++kx, from += w->channels)
            best = _mm256_max_epi8(best, _mm256_loadu_si256((const __m256i *)(const void *)from));
    }
    _mm256_storeu_si256((__m256i *)(void *)(y + c), best);
}

/* Channels c..c + 15. */
static inline void max_16(const window *w, size_t c, int8_t *y) {
    __m128i best = _mm_set1_epi8(-128);
    for (int32_t ky = w->rows.first; ky < w->rows.last; ++ky) {
        const int8_t *from = first_pixel(w, ky) + c;
        for (int32_t kx = w->columns.first; kx < w->columns.last; ++kx, from += w->channels)
            best = _mm_max_epi8(best, _mm_loadu_si128((const __m128i *)(const void *)from));
    }
    _mm_storeu_si128((__m128i *)(void *)(y + c), best);
}

/* Channel c. */
static inline void max_1(const window *w, size_t c, int8_t *y) {
    int8_t best = -128;
    for (int32_t ky = w->rows.first; ky < w->rows.last; ++ky) {
        const int8_t *from = first_pixel(w, ky) + c;
        for (int32_t kx = w->columns.first; kx < w->columns.last; ++kx, from += w->channels)
            best = *from > best ? *from : best;
    }
    y[c] = best;
}

void midge_max_pool_s8_avx2(const midge_strip *strip, const midge_op *op) {
    const midge_pool p = midge_pool_at(strip, op);
    window w;
    w.x = &p.x;
    w.channels = p.channels;
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        int8_t *y = midge_row(&p.y, row);
        w.image = row / p.y_height * (uint32_t)p.x_height;
        w.rows = midge_pool_rows(&p, op, row % p.y_height);
        for (int32_t ox = 0; ox < p.y_width; ++ox, y += p.channels) {
            size_t c = 0;
            w.columns = midge_pool_columns(&p, op, ox);
            for (; c + 32 <= p.channels; c += 32)
                max_32(&w, c, y);
            for (; c + 16 <= p.channels; c += 16)
                max_16(&w, c, y);
            for (; c < p.channels; ++c)
                max_1(&w, c, y);
        }
    }
}

MIDGE_TARGET_END

#else
typedef int midge_nothing;
#endif
