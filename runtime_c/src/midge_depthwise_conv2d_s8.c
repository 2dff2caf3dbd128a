/* midge_depthwise_conv2d_s8.c - convolution with one group per input channel. */
#include "midge_kernel.h"

#define LANES 8 /* output channels that accumulate side by side */

/* What does not change from one output pixel to the next. */
typedef struct depthwise {
    int32_t x_width, kernel_width, dilation_y, dilation_x, x_zero_point;
    size_t channels, out;
    const uint32_t *bias, *m;
    const int8_t *weight;
    midge_requant limits;
} depthwise;

/* Channels c..c + count - 1 of one output pixel. Lane i reads input channel i * x_step, so that
 * x_step 0 serves several output channels per input channel. */
static inline void sum_lanes(const depthwise *p, const int8_t *x, int8_t *y, size_t c, size_t count,
                             size_t x_step, midge_span rows, midge_span columns) {
    int32_t acc[LANES] = {0};
    for (int32_t ky = rows.first; ky < rows.last; ++ky) {
        const int32_t row = (rows.start + ky * p->dilation_y) * p->x_width;
        for (int32_t kx = columns.first; kx < columns.last; ++kx) {
            const size_t pixel = (size_t)(row + columns.start + kx * p->dilation_x);
            const int8_t *from = x + pixel * p->channels;
            const int8_t *w = p->weight + (size_t)(ky * p->kernel_width + kx) * p->out + c;
            if (count == LANES) {
                for (size_t i = 0; i < LANES; ++i)
                    acc[i] += (from[i * x_step] - p->x_zero_point) * w[i];
            } else {
                for (size_t i = 0; i < count; ++i)
                    acc[i] += (from[i * x_step] - p->x_zero_point) * w[i];
            }
        }
    }
    midge_store_s8(y + c, acc, count, p->bias + c, p->m + c, &p->limits);
}

/* Writes every channel of one output pixel. */
static void depthwise_pixel(const depthwise *p, const int8_t *x, int8_t *y, midge_span rows,
                            midge_span columns) {
    if (p->channels == p->out) {
        for (size_t c = 0; c < p->out; c += LANES) {
            const size_t count = p->out - c < LANES ? p->out - c : LANES;
            sum_lanes(p, x + c, y, c, count, 1, rows, columns);
        }
        return;
    }
    const size_t per_channel = p->out / p->channels;
    for (size_t g = 0; g < p->channels; ++g) {
        const size_t end = (g + 1) * per_channel;
        for (size_t c = g * per_channel; c < end; c += LANES) {
            const size_t count = end - c < LANES ? end - c : LANES;
            sum_lanes(p, x + g, y, c, count, 0, rows, columns);
        }
    }
}

static depthwise read_record(const midge_memory *memory, const midge_op *op) {
    depthwise p;
    p.x_width = midge_high(op->word[MIDGE_CONV_X_SIZE]);
    p.kernel_width = midge_high(op->word[MIDGE_CONV_KERNEL]);
    p.dilation_y = midge_low(op->word[MIDGE_CONV_DILATION]);
    p.dilation_x = midge_high(op->word[MIDGE_CONV_DILATION]);
    p.x_zero_point = midge_code(op->word[MIDGE_CONV_CODES], 0);
    p.channels = (size_t)midge_low(op->word[MIDGE_CONV_CHANNELS]);
    p.out = (size_t)midge_high(op->word[MIDGE_CONV_CHANNELS]);
    p.bias = memory->data + op->word[MIDGE_OP_DATA];
    p.m = p.bias + p.out;
    p.weight = (const int8_t *)(p.m + p.out);
    p.limits = midge_requant_limits(op->word[MIDGE_CONV_CODES]);
    return p;
}

void midge_depthwise_conv2d_s8(const midge_memory *memory, const midge_op *op) {
    const depthwise p = read_record(memory, op);
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
                depthwise_pixel(&p, x, y, rows, columns);
                y += p.out;
            }
        }
        x += (size_t)x_height * (size_t)p.x_width * p.channels;
    }
}
