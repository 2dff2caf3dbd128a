/* Maximum and average pooling on NHWC arrays: forward and gradients. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "window.h"

/*
 * y = the largest value of each window, index = its pixel h * W + w in the input. The first of
 * equal values wins and a NaN wins over everything, as in PyTorch. A window that lies in the
 * padding as a whole gives -inf and the index -1.
 */
void midge_max_pool_f32(const float *restrict x, float *restrict y, int32_t *restrict index,
                        const midge_window *g)
{
    for (ptrdiff_t r = 0; r < g->n * g->oh; r++) {
        const ptrdiff_t b = r / g->oh, y0 = r % g->oh * g->sy - g->top;
        ptrdiff_t j0, j1;
        midge_taps(y0, g->h, g->kh, g->dy, &j0, &j1);
        for (ptrdiff_t ox = 0; ox < g->ow; ox++, y += g->c, index += g->c) {
            const ptrdiff_t x0 = ox * g->sx - g->left;
            ptrdiff_t k0, k1;
            midge_taps(x0, g->w, g->kw, g->dx, &k0, &k1);
            const int32_t first = (int32_t)((y0 + j0 * g->dy) * g->w + x0 + k0 * g->dx);
            const int empty = j0 >= j1 || k0 >= k1;
            for (ptrdiff_t i = 0; i < g->c; i++) {
                y[i] = -INFINITY;
                index[i] = empty ? -1 : first;
            }
            for (ptrdiff_t ky = j0; ky < j1; ky++) {
                for (ptrdiff_t kx = k0; kx < k1; kx++) {
                    const int32_t p = (int32_t)((y0 + ky * g->dy) * g->w + x0 + kx * g->dx);
                    const float *s = x + (b * g->h * g->w + p) * g->c;
                    for (ptrdiff_t i = 0; i < g->c; i++) {
                        const int win = (s[i] > y[i]) | (s[i] != s[i]);
                        y[i] = win ? s[i] : y[i];
                        index[i] = win ? p : index[i];
                    }
                }
            }
        }
    }
}

/* gx[index] += gy, in the order of gy. */
void midge_max_pool_scatter_f32(const float *restrict gy, const int32_t *restrict index,
                                float *restrict gx, const midge_window *g)
{
    memset(gx, 0, sizeof(float) * (size_t)(g->n * g->h * g->w * g->c));
    for (ptrdiff_t b = 0; b < g->n; b++, gx += g->h * g->w * g->c) {
        for (ptrdiff_t o = 0; o < g->oh * g->ow; o++, gy += g->c, index += g->c) {
            for (ptrdiff_t i = 0; i < g->c; i++) {
                if (index[i] >= 0) {
                    gx[index[i] * g->c + i] += gy[i];
                }
            }
        }
    }
}

/* y = the sum of each window over ky, kx (in this order) / divisor[oy * ow + ox]. */
void midge_avg_pool_f32(const float *restrict x, const float *restrict divisor, float *restrict y,
                        const midge_window *g)
{
    for (ptrdiff_t r = 0; r < g->n * g->oh; r++) {
        const ptrdiff_t b = r / g->oh, y0 = r % g->oh * g->sy - g->top;
        ptrdiff_t j0, j1;
        midge_taps(y0, g->h, g->kh, g->dy, &j0, &j1);
        for (ptrdiff_t ox = 0; ox < g->ow; ox++, y += g->c) {
            const ptrdiff_t x0 = ox * g->sx - g->left;
            const float count = divisor[r % g->oh * g->ow + ox];
            ptrdiff_t k0, k1;
            midge_taps(x0, g->w, g->kw, g->dx, &k0, &k1);
            memset(y, 0, sizeof(float) * (size_t)g->c);
            for (ptrdiff_t ky = j0; ky < j1; ky++) {
                const float *s = x + ((b * g->h + y0 + ky * g->dy) * g->w + x0 + k0 * g->dx) * g->c;
                for (ptrdiff_t kx = k0; kx < k1; kx++, s += g->dx * g->c) {
                    for (ptrdiff_t i = 0; i < g->c; i++) {
                        y[i] += s[i];
                    }
                }
            }
            for (ptrdiff_t i = 0; i < g->c; i++) {
                y[i] /= count;
            }
        }
    }
}

/* The transpose of midge_avg_pool_f32: every window adds gy / divisor to its pixels. */
void midge_avg_pool_grad_f32(const float *restrict gy, const float *restrict divisor,
                             float *restrict gx, const midge_window *g)
{
    memset(gx, 0, sizeof(float) * (size_t)(g->n * g->h * g->w * g->c));
    for (ptrdiff_t r = 0; r < g->n * g->oh; r++) {
        const ptrdiff_t b = r / g->oh, y0 = r % g->oh * g->sy - g->top;
        ptrdiff_t j0, j1;
        midge_taps(y0, g->h, g->kh, g->dy, &j0, &j1);
        for (ptrdiff_t ox = 0; ox < g->ow; ox++, gy += g->c) {
            const ptrdiff_t x0 = ox * g->sx - g->left;
            const float count = divisor[r % g->oh * g->ow + ox];
            ptrdiff_t k0, k1;
            midge_taps(x0, g->w, g->kw, g->dx, &k0, &k1);
            for (ptrdiff_t ky = j0; ky < j1; ky++) {
                float *d = gx + ((b * g->h + y0 + ky * g->dy) * g->w + x0 + k0 * g->dx) * g->c;
                for (ptrdiff_t kx = k0; kx < k1; kx++, d += g->dx * g->c) {
                    for (ptrdiff_t i = 0; i < g->c; i++) {
                        d[i] += gy[i] / count;
                    }
                }
            }
        }
    }
}
