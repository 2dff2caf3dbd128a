/* Batch normalization of a [rows, c] array with the statistics of the batch: forward, gradient. */
#include <math.h>
#include <stddef.h>

#include "window.h"

/* Sums of 64 rows are taken in float, sums of those in double: nearly the accuracy of double. */
#define ROWS 64

/* first[i] = sum of x - shift, second[i] = sum of (x - shift)^2, shift = the first row. */
MIDGE_INLINE void moments_block(const float *restrict x, double *restrict first,
                                double *restrict second, ptrdiff_t rows, ptrdiff_t c, ptrdiff_t c0,
                                const int block)
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
        first[c0 + i] = sum[i];
        second[c0 + i] = square[i];
    }
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

/*
 * Normalize by the batch's own statistics.
 *
 * weight and bias [c] may be NULL for 1 and 0; mean, var (biased) and rstd = 1 / sqrt(var + eps)
 * are written; room is [3, c] of scratch.
 */
void midge_batch_norm_f32(const float *x, const float *weight, const float *bias, float *y,
                          double *mean, double *var, double *rstd, float *room, ptrdiff_t rows,
                          ptrdiff_t c, double eps)
{
#define CALL(block) moments_block(x, mean, var, rows, c, c0, block)
    MIDGE_EACH_BLOCK(c, CALL)
#undef CALL
    for (ptrdiff_t i = 0; i < c; i++) {
        const double offset = mean[i] / (double)rows;
        const double spread = var[i] / (double)rows - offset * offset;
        mean[i] = offset + (double)x[i];
        var[i] = spread > 0.0 ? spread : 0.0;
        rstd[i] = 1.0 / sqrt(var[i] + eps);
        room[i] = (float)mean[i];
        room[c + i] = (float)(weight ? rstd[i] * (double)weight[i] : rstd[i]);
        room[2 * c + i] = bias ? bias[i] : 0.0F;
    }
    midge_normalize_f32(x, room, room + c, room + 2 * c, y, rows, c);
}

/* gx = gy * a + (x - mean) * b + d, with a, b, d and mean a channel. */
static void combine(const float *restrict gy, const float *restrict x, const float *restrict mean,
                    const float *restrict a, const float *restrict b, const float *restrict d,
                    float *restrict gx, ptrdiff_t rows, ptrdiff_t c)
{
    for (ptrdiff_t r = 0; r < rows; r++, gy += c, x += c, gx += c) {
        for (ptrdiff_t i = 0; i < c; i++) {
            gx[i] = gy[i] * a[i] + (x[i] - mean[i]) * b[i] + d[i];
        }
    }
}

/*
 * The gradients of midge_batch_norm_f32; weight may be NULL for 1; room is [4, c] of scratch and
 * total [2, c].
 *
 * gx = weight * rstd * (gy - gbias / rows - (x - mean) * rstd * gweight / rows)
 */
void midge_batch_norm_grad_f32(const float *gy, const float *x, const double *mean,
                               const double *rstd, const float *weight, float *gx, float *gweight,
                               float *gbias, double *total, float *room, ptrdiff_t rows, ptrdiff_t c)
{
    float *m = room, *a = room + c, *b = room + 2 * c, *d = room + 3 * c;
    for (ptrdiff_t i = 0; i < c; i++) {
        m[i] = (float)mean[i];
    }
#define CALL(block) products_block(gy, x, m, total, rows, c, c0, block)
    MIDGE_EACH_BLOCK(c, CALL)
#undef CALL
    for (ptrdiff_t i = 0; i < c; i++) {
        const double scale = weight ? (double)weight[i] * rstd[i] : rstd[i];
        const double sum = total[i], product = total[c + i] * rstd[i];
        gbias[i] = (float)sum;
        gweight[i] = (float)product;
        a[i] = (float)scale;
        b[i] = (float)(-scale * rstd[i] * product / (double)rows);
        d[i] = (float)(-scale * sum / (double)rows);
    }
    combine(gy, x, m, a, b, d, gx, rows, c);
}
