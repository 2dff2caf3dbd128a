/* midge_conv2d_c4n16_s8.c - 2-D convolution with one group, weights in panels of 16 channels.
 *
 * The portable twin of the vector kernels that read the same constants.
 */
#include "midge_kernel.h"

#define PANEL 16u

/* Copies the window of one output pixel, [kh, kw, C] codes plus 128; the rest of `depth` is 0. */
static void gather(const midge_conv *p, uint32_t image, midge_span rows, midge_span columns,
                   uint8_t *to, size_t depth) {
    memset(to, p->x_zero_point + 128, depth);
    for (int32_t ky = rows.first; ky < rows.last; ++ky) {
        const int8_t *x = midge_row(&p->x, image + (uint32_t)(rows.start + ky * p->dilation_y));
        for (int32_t kx = columns.first; kx < columns.last; ++kx) {
            const int8_t *from = x + (size_t)(columns.start + kx * p->dilation_x) * p->channels;
            uint8_t *tap = to + (size_t)(ky * p->kernel_width + kx) * p->channels;
            for (size_t i = 0; i < p->channels; ++i)
                tap[i] = (uint8_t)from[i] ^ 0x80u;
        }
    }
}

/* Less the zero point of the weights times the codes of a window. */
static uint32_t start_of(const uint8_t *window, size_t count, int32_t w_zero_point) {
    uint32_t sum = 0;
    for (size_t i = 0; i < count && w_zero_point != 0; ++i)
        sum += window[i];
    return 0u - (uint32_t)w_zero_point * sum;
}

/* Writes up to 16 channels: `start` plus `window` [depth] times a panel [depth / 4, count, 4]. */
static void multiply(const uint8_t *window, uint32_t start, const int8_t *panel, size_t depth,
                     size_t count, const uint32_t *bias, const uint32_t *m,
                     const midge_requant *limits, int8_t *y) {
    int32_t acc[PANEL] = {0};
    for (size_t k = 0; k < depth; k += 4, panel += 4 * count) {
        const uint8_t *x = window + k;
        for (size_t c = 0; c < count; ++c) {
            const int8_t *w = panel + 4 * c;
            acc[c] += x[0] * w[0] + x[1] * w[1] + x[2] * w[2] + x[3] * w[3];
        }
    }
    for (size_t c = 0; c < count; ++c)
        acc[c] = (int32_t)(start + (uint32_t)acc[c]);
    midge_store_s8(y, acc, count, bias, m, limits);
}

void midge_conv2d_c4n16_s8(const midge_strip *strip, const midge_op *op) {
    const midge_conv p = midge_conv_at(strip, op);
    const size_t taps = (size_t)(p.kernel_height * p.kernel_width);
    const size_t depth = (taps * p.channels + 3u) & ~(size_t)3u;
    const int32_t w_zero_point = (int16_t)midge_high(op->word[MIDGE_CONV_BLOCK]);
    uint8_t *window = midge_scratch(strip, op);
    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const uint32_t image = row / p.y_height * (uint32_t)p.x_height;
        const midge_span rows = midge_conv_rows(&p, row % p.y_height);
        int8_t *y = midge_row(&p.y, row);
        for (int32_t ox = 0; ox < p.y_width; ++ox, y += p.out) {
            gather(&p, image, rows, midge_conv_columns(&p, ox), window, depth);
            const uint32_t start = start_of(window, taps * p.channels, w_zero_point);
            for (size_t c = 0; c < p.out; c += PANEL) {
                const size_t count = p.out - c < PANEL ? p.out - c : PANEL;
                multiply(window, start, p.weight + c * depth, depth, count, p.bias + c, p.m + c,
                         &p.limits, y + c);
            }
        }
    }
}
