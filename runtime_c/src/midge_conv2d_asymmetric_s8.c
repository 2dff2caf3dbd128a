/* midge_conv2d_asymmetric_s8.c - convolution by weights that have a zero point of their own.
 *
 * Serves files of other tools whose weights, less their zero point, leave int8; layers with any
 * groups, and matrix products (one row of pixels). The converter has proved that no sum leaves
 * int32.
 */
#include "midge_kernel.h"

/* Returns the sum of one output channel, with its weights w, `pitch` from tap to tap; its group
 * begins at channel `first`. Row 0 of the image is row `image` of X. */
static int32_t sum_window(const midge_conv *p, uint32_t image, size_t first, const int8_t *w,
                          size_t pitch, int32_t w_zero_point, midge_span rows, midge_span columns) {
    const size_t group_in = p->channels / p->groups;
    int32_t acc = 0;
    for (int32_t ky = rows.first; ky < rows.last; ++ky) {
        const uint32_t row = image + (uint32_t)(rows.start + ky * p->dilation_y);
        const int8_t *x = midge_row(&p->x, row) + first;
        for (int32_t kx = columns.first; kx < columns.last; ++kx) {
            const int8_t *from = x + (size_t)(columns.start + kx * p->dilation_x) * p->channels;
            const int8_t *tap = w + (size_t)(ky * p->kernel_width + kx) * pitch;
            for (size_t i = 0; i < group_in; ++i)
                acc += (from[i] - p->x_zero_point) * (tap[i] - w_zero_point);
        }
    }
    return acc;
}

void midge_conv2d_asymmetric_s8(const midge_strip *strip, const midge_op *op) {
    const midge_conv p = midge_conv_at(strip, op);
    const int32_t w_zero_point = midge_signed(op->word[MIDGE_CONV_W_ZERO_POINT]);
    const size_t group_in = p.channels / p.groups, group_out = p.out / p.groups;
    const int depthwise = p.groups == p.channels;
    const size_t tap_pitch = depthwise ? p.out : group_in;
    const size_t pitch = depthwise ? 1 : (size_t)(p.kernel_height * p.kernel_width) * group_in;

    for (uint32_t row = strip->first; row < strip->last; ++row) {
        const uint32_t image = row / p.y_height * (uint32_t)p.x_height;
        const midge_span rows = midge_conv_rows(&p, row % p.y_height);
        int8_t *y = midge_row(&p.y, row);
        for (int32_t ox = 0; ox < p.y_width; ++ox, y += p.out) {
            const midge_span columns = midge_conv_columns(&p, ox);
            for (size_t c = 0; c < p.out; ++c) {
                const int32_t acc =
                    sum_window(&p, image, c / group_out * group_in, p.weight + c * pitch, tap_pitch,
                               w_zero_point, rows, columns);
                midge_store_s8(y + c, &acc, 1, p.bias + c, p.m + c, &p.limits);
            }
        }
    }
}
