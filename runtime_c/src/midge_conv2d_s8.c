/* midge_conv2d_s8.c - 2-D convolution with stride, dilation, groups and padding. */
#include "midge_kernel.h"

/* What does not change from one output pixel to the next. */
typedef struct conv {
    int32_t x_width, channels, kernel_width, dilation_y, dilation_x, x_zero_point;
    size_t groups, group_in, group_out, pitch;
    const uint32_t *bias, *m;
    const int8_t *weight;
    midge_requant limits;
} conv;

/* Adds the window's taps that lie inside the input; the others hold x_zero_point and add 0. */
static inline void sum_window(const conv *p, midge_dot4 *dot, const int8_t *x, midge_span rows,
                              midge_span columns) {
    /* Taps of one row are neighbours in memory, unless other groups or a dilation part them. */
    const int32_t step = p->groups == 1 && p->dilation_x == 1 ? columns.last - columns.first : 1;
    const size_t run = (size_t)step * p->group_in;
    for (int32_t ky = rows.first; ky < rows.last; ++ky) {
        const int32_t row = (rows.start + ky * p->dilation_y) * p->x_width;
        for (int32_t kx = columns.first; kx < columns.last; kx += step) {
            const size_t pixel = (size_t)(row + columns.start + kx * p->dilation_x);
            const size_t tap = (size_t)(ky * p->kernel_width + kx) * p->group_in;
            midge_dot4_s8(dot, x + pixel * (size_t)p->channels, tap, run, p->x_zero_point);
        }
    }
}

/* Writes every channel of one output pixel. */
static void conv_pixel(const conv *p, const int8_t *x, int8_t *y, midge_span rows,
                       midge_span columns) {
    for (size_t g = 0; g < p->groups; ++g) {
        const size_t first = g * p->group_out, end = first + p->group_out;
        for (size_t c = first; c < end; c += 4) {
            const size_t count = end - c < 4 ? end - c : 4;
            midge_dot4 dot = midge_dot4_start(p->weight, p->pitch, c, end);
            sum_window(p, &dot, x + g * p->group_in, rows, columns);
            midge_store_s8(y + c, dot.acc, count, p->bias + c, p->m + c, &p->limits);
        }
    }
}

static conv read_record(const midge_memory *memory, const midge_op *op) {
    const int32_t channels = midge_low(op->word[MIDGE_CONV_CHANNELS]);
    const size_t out = (size_t)midge_high(op->word[MIDGE_CONV_CHANNELS]);
    const int32_t kernel_width = midge_high(op->word[MIDGE_CONV_KERNEL]);
    conv p;
    p.x_width = midge_high(op->word[MIDGE_CONV_X_SIZE]);
    p.channels = channels;
    p.kernel_width = kernel_width;
    p.dilation_y = midge_low(op->word[MIDGE_CONV_DILATION]);
    p.dilation_x = midge_high(op->word[MIDGE_CONV_DILATION]);
    p.x_zero_point = midge_code(op->word[MIDGE_CONV_CODES], 0);
    p.groups = (size_t)midge_high(op->word[MIDGE_CONV_GROUPS]);
    p.group_in = (size_t)channels / p.groups;
    p.group_out = out / p.groups;
    p.pitch = (size_t)(midge_low(op->word[MIDGE_CONV_KERNEL]) * kernel_width) * p.group_in;
    p.bias = memory->data + op->word[MIDGE_OP_DATA];
    p.m = p.bias + out;
    p.weight = (const int8_t *)(p.m + out);
    p.limits = midge_requant_limits(op->word[MIDGE_CONV_CODES]);
    return p;
}

void midge_conv2d_s8(const midge_memory *memory, const midge_op *op) {
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
            for (int32_t ox = 0; ox < y_width; ++ox) {
                const midge_span columns =
                    midge_clip(ox * stride_x - left, p.kernel_width, p.dilation_x, p.x_width);
                conv_pixel(&p, x, y, rows, columns);
                y += p.groups * p.group_out;
            }
        }
        x += (size_t)x_height * (size_t)p.x_width * (size_t)p.channels;
    }
}
