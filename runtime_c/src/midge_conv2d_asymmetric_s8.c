/* midge_conv2d_asymmetric_s8.c - convolution by weights that have a zero point of their own.
 *
 * Serves files of other tools whose weights, less their zero point, leave int8; depthwise layers
 * and matrix products (one row of pixels) too. The converter has proved that no sum leaves int32.
 */
#include "midge_kernel.h"

/* What does not change from one output pixel to the next. */
typedef struct conv {
    int32_t x_width, kernel_width, dilation_y, dilation_x, x_zero_point, w_zero_point;
    size_t channels, out, group_in, group_out, pitch;
    const uint32_t *bias, *m;
    const int8_t *weight;
    midge_requant limits;
} conv;

/* Returns the sum of one output channel; x is its group's first channel, w its weights. */
static int32_t sum_window(const conv *p, const int8_t *x, const int8_t *w, midge_span rows,
                          midge_span columns) {
    int32_t acc = 0;
    for (int32_t ky = rows.first; ky < rows.last; ++ky) {
        const int32_t row = (rows.start + ky * p->dilation_y) * p->x_width;
        for (int32_t kx = columns.first; kx < columns.last; ++kx) {
            const size_t pixel = (size_t)(row + columns.start + kx * p->dilation_x);
            const int8_t *from = x + pixel * p->channels;
            const int8_t *tap = w + (size_t)(ky * p->kernel_width + kx) * p->group_in;
            for (size_t i = 0; i < p->group_in; ++i)
                acc += (from[i] - p->x_zero_point) * (tap[i] - p->w_zero_point);
        }
    }
    return acc;
}

static conv read_record(const midge_memory *memory, const midge_op *op) {
    const size_t groups = (size_t)midge_high(op->word[MIDGE_CONV_GROUPS]);
    conv p;
    p.x_width = midge_high(op->word[MIDGE_CONV_X_SIZE]);
    p.kernel_width = midge_high(op->word[MIDGE_CONV_KERNEL]);
    p.dilation_y = midge_low(op->word[MIDGE_CONV_DILATION]);
    p.dilation_x = midge_high(op->word[MIDGE_CONV_DILATION]);
    p.x_zero_point = midge_code(op->word[MIDGE_CONV_CODES], 0);
    p.w_zero_point = midge_signed(op->word[MIDGE_CONV_W_ZERO_POINT]);
    p.channels = (size_t)midge_low(op->word[MIDGE_CONV_CHANNELS]);
    p.out = (size_t)midge_high(op->word[MIDGE_CONV_CHANNELS]);
    p.group_in = p.channels / groups;
    p.group_out = p.out / groups;
    p.pitch = (size_t)(midge_low(op->word[MIDGE_CONV_KERNEL]) * p.kernel_width) * p.group_in;
    p.bias = memory->data + op->word[MIDGE_OP_DATA];
    p.m = p.bias + p.out;
    p.weight = (const int8_t *)(p.m + p.out);
    p.limits = midge_requant_limits(op->word[MIDGE_CONV_CODES]);
    return p;
}

void midge_conv2d_asymmetric_s8(const midge_memory *memory, const midge_op *op) {
    const conv p = read_record(memory, op);
    const int32_t x_height = midge_low(op->word[MIDGE_CONV_X_SIZE]);
    const int32_t y_height = midge_low(op->word[MIDGE_CONV_Y_SIZE]);
    const int32_t y_width = midge_high(op->word[MIDGE_CONV_Y_SIZE]);
    const int32_t kernel_height = midge_low(op->word[MIDGE_CONV_KERNEL]);
    const int32_t stride_y = midge_low(op->word[MIDGE_CONV_STRIDE]);
    const int32_t stride_x = midge_high(op->word[MIDGE_CONV_STRIDE]);
    const int32_t top = midge_low(op->word[MIDGE_CONV_PADS]);
    const int32_t left = midge_high(op->word[MIDGE_CONV_PADS]);
    const int8_t *x = midge_codes_at(memory, op, MIDGE_OP_X);
    int8_t *y = midge_codes_at(memory, op, MIDGE_OP_Y);

    for (int32_t n = midge_low(op->word[MIDGE_CONV_GROUPS]); n > 0; --n) {
        for (int32_t oy = 0; oy < y_height; ++oy) {
            const midge_span rows =
                midge_clip(oy * stride_y - top, kernel_height, p.dilation_y, x_height);
            for (int32_t ox = 0; ox < y_width; ++ox, y += p.out) {
                const midge_span columns =
                    midge_clip(ox * stride_x - left, p.kernel_width, p.dilation_x, p.x_width);
                for (size_t c = 0; c < p.out; ++c) {
                    const int8_t *from = x + c / p.group_out * p.group_in;
                    const int32_t acc = sum_window(&p, from, p.weight + c * p.pitch, rows, columns);
                    midge_store_s8(y + c, &acc, 1, p.bias + c, p.m + c, &p.limits);
                }
            }
        }
        x += (size_t)x_height * (size_t)p.x_width * p.channels;
    }
}
