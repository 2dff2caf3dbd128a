/* Batch normalization of a [rows, c] array with the statistics of the batch: forward, gradient. */
#include <stddef.h>

#include "window.h"

/* Sums of 64 rows are taken in float, sums of those in double: nearly the accuracy of double. */
#define ROWS 64

/* total[0][i] = sum of x - shift, total[1][i] = sum of (x - shift)^2, shift = the first row. */
MIDGE_INLINE void moments_block(const float *restrict x, double *restrict total, ptrdiff_t rows,
                                ptrdiff_t c, ptrdiff_t c0, const int block)
{
    double sum[MIDGE_WIDEST], square[MIDGE_WIDEST];
    float shift[MIDGE_WIDEST];
    for (int i = 0; i < block; i++) {
        sum[i] = square[i] = 0.0;
        shift[i] = x[c0 + i];
    }
    for (ptrdiff_t r0 = 0; r0 < rows; r0 += ROWS) {
        const ptrdiff_t r1 = rows - r0 < ROWS ? rows : r0 + ROWS;
        float p[MIDGE_WIDEST], q[MIDGE_WIDEST];
        for (int i = 0; i < block; i++) {
            p[i] = q[i] = 0.0F;
        }
        for (ptrdiff_t r = r0; r < r1; r++) {
            const float *s = x + r * c + c0;
            for (int i = 0; i < block; i++) {
                const float d = s[i] - shift[i];
                p[i] += d;
                q[i] += d * d;
            }
        }
        for (int i = 0; i < block; i++) {
            sum[i] += (double)p[i];
            square[i] += (double)q[i];
        }
    }
    for (int i = 0; i < block; i++) {
        total[c0 + i] = sum[i];
        total[c + c0 + i] = square[i];
    }
}

/* total [2, c]: the sums above; mean and biased variance follow from them in double. */
void midge_moments_f32(const float *x, double *total, ptrdiff_t rows, ptrdiff_t c)
{
#define CALL(block) moments_block(x, total, rows, c, c0, block)
    MIDGE_EACH_BLOCK(c, CALL)
#undef CALL
}

/* total[0][i] = sum of gy, total[1][i] = sum of gy * (x - mean). */
MIDGE_INLINE void products_block(const float *restrict gy, const float *restrict x,
                                 const float *restrict mean, double *restrict total, ptrdiff_t rows,
                                 ptrdiff_t c, ptrdiff_t c0, const int block)
{
    double sum[MIDGE_WIDEST], product[MIDGE_WIDEST];
    float m[MIDGE_WIDEST];
    for (int i = 0; i < block; i++) {
        sum[i] = product[i] = 0.0;
        m[i] = mean[c0 + i];
    }
    for (ptrdiff_t r0 = 0; r0 < rows; r0 += ROWS) {
        const ptrdiff_t r1 = rows - r0 < ROWS ? rows : r0 + ROWS;
        float p[MIDGE_WIDEST], q[MIDGE_WIDEST];
        for (int i = 0; i < block; i++) {
            p[i] = q[i] = 0.0F;
        }
        for (ptrdiff_t r = r0; r < r1; r++) {
            const float *s = x + r * c + c0, *e = gy + r * c + c0;
            for (int i = 0; i < block; i++) {
                p[i] += e[i];
                q[i] += e[i] * (s[i] - m[i]);
            }
        }
        for (int i = 0; i < block; i++) {
            sum[i] += (double)p[i];
            product[i] += (double)q[i];
        }
    }
    for (int i = 0; i < block; i++) {
        total[c0 + i] = sum[i];
        total[c + c0 + i] = product[i];
    }
}

void midge_products_f32(const float *gy, const float *x, const float *mean, double *total,
                        ptrdiff_t rows, ptrdiff_t c)
{
#define CALL(block) products_block(gy, x, mean, total, rows, c, c0, block)
    MIDGE_EACH_BLOCK(c, CALL)
#undef CALL
}

/* y = (x - mean) * scale + shift, with mean, scale and shift a channel. */
void midge_normalize_f32(const float *restrict x, const float *restrict mean,
                         const float *restrict scale, const float *restrict shift,
                         float *restrict y, ptrdiff_t rows, ptrdiff_t c)
{
    for (ptrdiff_t r = 0; r < rows; r++, x += c, y += c) {
        for (ptrdiff_t i = 0; i < c; i++) {
            y[i] = (x[i] - mean[i]) * scale[i] + shift[i];
        }
    }
}

/* gx = gy * a + (x - mean) * b + d, with a, b, d and mean a channel. */
void midge_normalize_grad_f32(const float *restrict gy, const float *restrict x,
                              const float *restrict mean, const float *restrict a,
                              const float *restrict b, const float *restrict d, float *restrict gx,
                              ptrdiff_t rows, ptrdiff_t c)
{
    for (ptrdiff_t r = 0; r < rows; r++, gy += c, x += c, gx += c) {
        for (ptrdiff_t i = 0; i < c; i++) {
            gx[i] = gy[i] * a[i] + (x[i] - mean[i]) * b[i] + d[i];
        }
    }
}
