/* The geometry that the convolution and pooling kernels share. */
#ifndef MIDGE_KERNELS_WINDOW_H
#define MIDGE_KERNELS_WINDOW_H

#include <stddef.h>

/* Sizes in elements. Arrays are [n, h, w, c] and [n, oh, ow, c], rows without gaps. */
typedef struct {
    ptrdiff_t n, h, w, c;   /* batch, height, width and channels of the input */
    ptrdiff_t oh, ow;       /* height and width of the output */
    ptrdiff_t kh, kw;       /* kernel */
    ptrdiff_t sy, sx;       /* stride */
    ptrdiff_t dy, dx;       /* dilation */
    ptrdiff_t top, left;    /* padding; what stands below and right follows from oh and ow */
} midge_window;

/* The taps [first, last) of one axis that lie inside the input, for a window that starts at `start`. */
static inline void midge_taps(ptrdiff_t start, ptrdiff_t size, ptrdiff_t kernel, ptrdiff_t dilation,
                              ptrdiff_t *first, ptrdiff_t *last)
{
    ptrdiff_t lo = start < 0 ? (-start + dilation - 1) / dilation : 0;
    ptrdiff_t hi = size > start ? (size - start + dilation - 1) / dilation : 0;
    if (hi > kernel) {
        hi = kernel;
    }
    *first = lo < hi ? lo : hi;
    *last = hi;
}

/* The outputs [first, last) of one axis whose tap `offset` = k * dilation - padding is inside. */
static inline void midge_outputs(ptrdiff_t offset, ptrdiff_t size, ptrdiff_t stride, ptrdiff_t count,
                                 ptrdiff_t *first, ptrdiff_t *last)
{
    ptrdiff_t lo = offset < 0 ? (-offset + stride - 1) / stride : 0;
    ptrdiff_t hi = size > offset ? (size - offset + stride - 1) / stride : 0;
    if (hi > count) {
        hi = count;
    }
    *first = lo < hi ? lo : hi;
    *last = hi;
}

/*
 * The taps of one axis that read the input position `place` (already plus the padding): they are
 * first, first + step, ... below last, and tap k does so for the output (place - k * dilation) /
 * stride. One tap further is `back` outputs earlier.
 */
static inline void midge_readers(ptrdiff_t place, ptrdiff_t count, ptrdiff_t kernel, ptrdiff_t stride,
                                 ptrdiff_t dilation, ptrdiff_t *first, ptrdiff_t *last,
                                 ptrdiff_t *step, ptrdiff_t *back)
{
    const ptrdiff_t beyond = place - (count - 1) * stride; /* k * dilation must reach this far */
    ptrdiff_t lo = beyond > 0 ? (beyond + dilation - 1) / dilation : 0;
    const ptrdiff_t hi = place / dilation + 1;
    ptrdiff_t period = 1;
    while (period * dilation % stride) {
        period++;
    }
    for (ptrdiff_t tries = 0; tries < period && (place - lo * dilation) % stride; tries++) {
        lo++;
    }
    *last = hi < kernel ? hi : kernel;
    *first = (place - lo * dilation) % stride ? *last : lo; /* no tap hits this place */
    *step = period;
    *back = period * dilation / stride;
}

/*
 * Channels are done in blocks whose width is a literal after inlining, so the sums of a block stay
 * in vector registers; with a variable width the same loops run at half the speed.
 */
#define MIDGE_INLINE static inline __attribute__((always_inline))
#define MIDGE_WIDEST 32
#define MIDGE_EACH_BLOCK(c, call)                                                                  \
    for (ptrdiff_t c0 = 0; c0 < (c);) {                                                            \
        ptrdiff_t rest = (c) - c0;                                                                 \
        if (rest >= 32) {                                                                          \
            call(32);                                                                              \
            c0 += 32;                                                                              \
        } else if (rest >= 16) {                                                                   \
            call(16);                                                                              \
            c0 += 16;                                                                              \
        } else if (rest >= 8) {                                                                    \
            call(8);                                                                               \
            c0 += 8;                                                                               \
        } else if (rest >= 4) {                                                                    \
            call(4);                                                                               \
            c0 += 4;                                                                               \
        } else {                                                                                   \
            call(1);                                                                               \
            c0 += 1;                                                                               \
        }                                                                                          \
    }

#endif
