/* Patches of an NHWC array as rows of a matrix, and the sum of such rows back into the array. */
#include <string.h>

#include "window.h"

/*
 * col[(r - r0) * ow + ox, ky, kx, i] = x[b, oy * sy + ky * dy - top, ox * sx + kx * dx - left, i],
 * 0 outside, for the output rows r = b * oh + oy of [r0, r1). A pixel of x has `ldx` >= c elements.
 */
void midge_im2col_f32(const float *restrict x, ptrdiff_t ldx, float *restrict col,
                      const midge_window *g, ptrdiff_t r0, ptrdiff_t r1)
{
    const size_t pixel = sizeof(float) * (size_t)g->c;
    const ptrdiff_t line = g->kw * g->c;
    const int dense = ldx == g->c && g->dx == 1;
    for (ptrdiff_t r = r0; r < r1; r++) {
        const ptrdiff_t b = r / g->oh, y0 = r % g->oh * g->sy - g->top;
        for (ptrdiff_t ox = 0; ox < g->ow; ox++) {
            const ptrdiff_t x0 = ox * g->sx - g->left;
            ptrdiff_t k0, k1;
            midge_taps(x0, g->w, g->kw, g->dx, &k0, &k1);
            for (ptrdiff_t ky = 0; ky < g->kh; ky++, col += line) {
                const ptrdiff_t iy = y0 + ky * g->dy;
                if (iy < 0 || iy >= g->h || k0 >= k1) {
                    memset(col, 0, pixel * (size_t)g->kw);
                    continue;
                }
                const float *s = x + ((b * g->h + iy) * g->w + x0 + k0 * g->dx) * ldx;
                if (k0 > 0) {
                    memset(col, 0, pixel * (size_t)k0);
                }
                if (k1 < g->kw) {
                    memset(col + k1 * g->c, 0, pixel * (size_t)(g->kw - k1));
                }
                if (dense) {
                    memcpy(col + k0 * g->c, s, pixel * (size_t)(k1 - k0));
                } else {
                    for (ptrdiff_t kx = k0; kx < k1; kx++, s += g->dx * ldx) {
                        memcpy(col + kx * g->c, s, pixel);
                    }
                }
            }
        }
    }
}

/* The transpose of midge_im2col_f32: x += the rows of col, in the order of the rows. */
void midge_col2im_f32(const float *restrict col, float *restrict x, ptrdiff_t ldx,
                      const midge_window *g, ptrdiff_t r0, ptrdiff_t r1)
{
    const ptrdiff_t line = g->kw * g->c;
    const int dense = ldx == g->c && g->dx == 1;
    for (ptrdiff_t r = r0; r < r1; r++) {
        const ptrdiff_t b = r / g->oh, y0 = r % g->oh * g->sy - g->top;
        for (ptrdiff_t ox = 0; ox < g->ow; ox++) {
            const ptrdiff_t x0 = ox * g->sx - g->left;
            ptrdiff_t k0, k1;
            midge_taps(x0, g->w, g->kw, g->dx, &k0, &k1);
            for (ptrdiff_t ky = 0; ky < g->kh; ky++, col += line) {
                const ptrdiff_t iy = y0 + ky * g->dy;
                if (iy < 0 || iy >= g->h) {
                    continue;
                }
                float *d = x + ((b * g->h + iy) * g->w + x0 + k0 * g->dx) * ldx;
                const float *s = col + k0 * g->c;
                const ptrdiff_t runs = dense ? 1 : k1 - k0;
                const ptrdiff_t length = dense ? (k1 - k0) * g->c : g->c;
                for (ptrdiff_t run = 0; run < runs; run++, s += g->c, d += g->dx * ldx) {
                    for (ptrdiff_t i = 0; i < length; i++) {
                        d[i] += s[i];
                    }
                }
            }
        }
    }
}
