/* Depthwise convolution on NHWC arrays, weights [kh, kw, c]: forward and both gradients. */
#include <string.h>

#include "window.h"

/* y[b, oy, ox, c0 ...] = bias + sum over ky, kx (in this order) of x * w, for `block` channels. */
MIDGE_INLINE void forward_block(const float *restrict x, const float *restrict w,
                                const float *restrict bias, float *restrict y,
                                const midge_window *g, ptrdiff_t c0, const int block)
{
    for (ptrdiff_t r = 0; r < g->n * g->oh; r++) {
        const ptrdiff_t b = r / g->oh, y0 = r % g->oh * g->sy - g->top;
        ptrdiff_t j0, j1;
        midge_taps(y0, g->h, g->kh, g->dy, &j0, &j1);
        for (ptrdiff_t ox = 0; ox < g->ow; ox++) {
            const ptrdiff_t x0 = ox * g->sx - g->left;
            ptrdiff_t k0, k1;
            midge_taps(x0, g->w, g->kw, g->dx, &k0, &k1);
            float a[MIDGE_WIDEST];
            for (int i = 0; i < block; i++) {
                a[i] = 0.0F;
            }
            for (ptrdiff_t ky = j0; ky < j1; ky++) {
                const float *s = x + ((b * g->h + y0 + ky * g->dy) * g->w + x0 + k0 * g->dx) * g->c + c0;
                const float *k = w + (ky * g->kw + k0) * g->c + c0;
                for (ptrdiff_t kx = k0; kx < k1; kx++, s += g->dx * g->c, k += g->c) {
                    for (int i = 0; i < block; i++) {
                        a[i] += s[i] * k[i];
                    }
                }
            }
            float *o = y + (r * g->ow + ox) * g->c + c0;
            for (int i = 0; i < block; i++) {
                o[i] = bias ? a[i] + bias[c0 + i] : a[i];
            }
        }
    }
}

void midge_depthwise_f32(const float *x, const float *w, const float *bias, float *y,
                         const midge_window *g)
{
#define CALL(block) forward_block(x, w, bias, y, g, c0, block)
    MIDGE_EACH_BLOCK(g->c, CALL)
#undef CALL
}

/* Every input pixel gathers its taps: nothing is read, changed and written again. */
MIDGE_INLINE void grad_input_block(const float *restrict gy, const float *restrict w,
                                   float *restrict gx, const midge_window *g, ptrdiff_t c0,
                                   const int block)
{
    for (ptrdiff_t r = 0; r < g->n * g->h; r++) {
        const ptrdiff_t b = r / g->h, py = r % g->h + g->top;
        ptrdiff_t j0, j1, jstep, jback;
        midge_readers(py, g->oh, g->kh, g->sy, g->dy, &j0, &j1, &jstep, &jback);
        const ptrdiff_t oy0 = (py - j0 * g->dy) / g->sy;
        for (ptrdiff_t ix = 0; ix < g->w; ix++) {
            const ptrdiff_t px = ix + g->left;
            ptrdiff_t k0, k1, kstep, kback;
            midge_readers(px, g->ow, g->kw, g->sx, g->dx, &k0, &k1, &kstep, &kback);
            const ptrdiff_t ox0 = (px - k0 * g->dx) / g->sx;
            float a[MIDGE_WIDEST];
            for (int i = 0; i < block; i++) {
                a[i] = 0.0F;
            }
            for (ptrdiff_t ky = j0, oy = oy0; ky < j1; ky += jstep, oy -= jback) {
                const float *row = gy + (b * g->oh + oy) * g->ow * g->c + c0;
                for (ptrdiff_t kx = k0, ox = ox0; kx < k1; kx += kstep, ox -= kback) {
                    const float *s = row + ox * g->c;
                    const float *k = w + (ky * g->kw + kx) * g->c + c0;
                    for (int i = 0; i < block; i++) {
                        a[i] += s[i] * k[i];
                    }
                }
            }
            memcpy(gx + (r * g->w + ix) * g->c + c0, a, sizeof(float) * (size_t)block);
        }
    }
}

void midge_depthwise_grad_input_f32(const float *gy, const float *w, float *gx,
                                    const midge_window *g)
{
#define CALL(block) grad_input_block(gy, w, gx, g, c0, block)
    MIDGE_EACH_BLOCK(g->c, CALL)
#undef CALL
}

/* For one tap the sum over an image stays in registers; images are added in their order. */
MIDGE_INLINE void grad_weight_block(const float *restrict x, const float *restrict gy,
                                    float *restrict gw, const midge_window *g, ptrdiff_t c0,
                                    const int block)
{
    for (ptrdiff_t b = 0; b < g->n; b++) {
        for (ptrdiff_t tap = 0; tap < g->kh * g->kw; tap++) {
            const ptrdiff_t dy = tap / g->kw * g->dy - g->top, dx = tap % g->kw * g->dx - g->left;
            ptrdiff_t v0, v1, u0, u1;
            midge_outputs(dy, g->h, g->sy, g->oh, &v0, &v1);
            midge_outputs(dx, g->w, g->sx, g->ow, &u0, &u1);
            float a[MIDGE_WIDEST];
            for (int i = 0; i < block; i++) {
                a[i] = 0.0F;
            }
            for (ptrdiff_t oy = v0; oy < v1; oy++) {
                const float *s = x + ((b * g->h + oy * g->sy + dy) * g->w + u0 * g->sx + dx) * g->c + c0;
                const float *q = gy + ((b * g->oh + oy) * g->ow + u0) * g->c + c0;
                for (ptrdiff_t ox = u0; ox < u1; ox++, s += g->sx * g->c, q += g->c) {
                    for (int i = 0; i < block; i++) {
                        a[i] += s[i] * q[i];
                    }
                }
            }
            float *o = gw + tap * g->c + c0;
            for (int i = 0; i < block; i++) {
                o[i] += a[i];
            }
        }
    }
}

void midge_depthwise_grad_weight_f32(const float *x, const float *gy, float *gw,
                                     const midge_window *g)
{
    memset(gw, 0, sizeof(float) * (size_t)(g->kh * g->kw * g->c));
#define CALL(block) grad_weight_block(x, gy, gw, g, c0, block)
    MIDGE_EACH_BLOCK(g->c, CALL)
#undef CALL
}
