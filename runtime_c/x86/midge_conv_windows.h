/* midge_conv_windows.h - the frame of the vector convolutions in panels of 16 channels. Private.
 *
 * It lays the windows of a block of output pixels into scratch, codes plus 128 and padding as
 * x_zero_point + 128, and passes them on in tiles of up to MIDGE_TILE pixels. The file that
 * includes it defines before:
 *
 *     midge_element  the type of a code in scratch, uint8_t or int16_t
 *     midge_widen    static inline void (midge_element *to, const int8_t *from, size_t count):
 *                    to[i] = from[i] + 128, touching nothing else
 *     midge_sum      static inline uint32_t (const midge_element *x, size_t count):
 *                    the sum of x, whose count is a multiple of 4
 *
 * and after it midge_make_tile.
 *
 * A window is `runs` runs of `run` neighbours. Where neighbouring windows share most of their codes
 * they overlap in scratch: it then holds a patch of the image, a run for each row of the kernel.
 * Otherwise each pixel has a window of its own, one run.
 */
#ifndef MIDGE_CONV_WINDOWS_H
#define MIDGE_CONV_WINDOWS_H

#define MIDGE_TILE 6
#define MIDGE_WEIGHT_BYTES 16384 /* of the channels that every tile of a block meets in turn */

/* DO(i) for each pixel of a tile. */
#define MIDGE_EACH_1(DO) DO(0)
#define MIDGE_EACH_2(DO) MIDGE_EACH_1(DO) DO(1)
#define MIDGE_EACH_3(DO) MIDGE_EACH_2(DO) DO(2)
#define MIDGE_EACH_4(DO) MIDGE_EACH_3(DO) DO(3)
#define MIDGE_EACH_5(DO) MIDGE_EACH_4(DO) DO(4)
#define MIDGE_EACH_6(DO) MIDGE_EACH_5(DO) DO(5)

/* How a layer's windows lie in scratch. */
typedef struct midge_windows {
    midge_element *codes;
    int patch;
    size_t depth;                 /* products of an output, a multiple of 4 */
    size_t run, runs, run_step;   /* run_step: from a run to the next */
    size_t row_step, column_step; /* from a pixel's window to that below, to the right */
    int32_t rows, columns;        /* most pixels of a block */
    int32_t w_zero_point;
} midge_windows;

/* Pixels of a block, rows x columns of them. */
typedef struct midge_block {
    uint32_t row;
    int32_t column, rows, columns;
} midge_block;

/* Pixels that are multiplied at once. */
typedef struct midge_tile {
    const midge_element *x[MIDGE_TILE]; /* their windows */
    int8_t *y[MIDGE_TILE];              /* channel 0 of their outputs */
    uint64_t start[MIDGE_TILE];         /* what their sums begin with, an int32 and zeros above */
    int count;
} midge_tile;

/* Makes the channels first..last - 1 of a tile; `first` is a multiple of 16. */
static void midge_make_tile(const midge_conv *p, const midge_windows *w, const midge_tile *tile,
                            size_t first, size_t last);

static inline int32_t midge_least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static inline void midge_fill(midge_element *to, midge_element value, size_t count) {
    for (size_t i = 0; i < count; ++i)
        to[i] = value;
}

/* Makes one row of the strip first..last - 1 where its pixels depend on one pixel each. */
static inline int midge_flatten(midge_conv *p, uint32_t first, uint32_t last) {
    const int pointwise = p->kernel_height == 1 && p->kernel_width == 1 && p->stride_y == 1 &&
                          p->stride_x == 1 && p->x_width == p->y_width &&
                          (uint32_t)p->x_height == p->y_height;
    if (!pointwise || p->x.ring || p->y.ring)
        return 0;
    p->x.codes = midge_row(&p->x, first);
    p->y.codes = midge_row(&p->y, first);
    p->x_width = p->y_width = (int32_t)(last - first) * p->y_width;
    p->x_height = 1;
    p->y_height = 1;
    return 1;
}

/* Chooses blocks whose windows take at most `capacity` elements: BLOCK windows of their own. */
static inline midge_windows midge_windows_for(const midge_conv *p, midge_element *scratch,
                                              size_t block) {
    const size_t kh = (size_t)p->kernel_height, kw = (size_t)p->kernel_width, C = p->channels;
    const size_t sy = (size_t)p->stride_y, sx = (size_t)p->stride_x;
    midge_windows w;
    w.codes = scratch;
    w.depth = (kh * kw * C + 3u) & ~(size_t)3u;
    w.patch = p->dilation_y == 1 && p->dilation_x == 1 && kw * C % 4 == 0 && sy <= kh && sx <= kw;
    size_t columns = block, rows = 1;
    if (w.patch) /* at least `block`, for the strides are no larger than the kernel */
        columns = (block * kw * kh / kh - kw) / sx + 1;
    if (columns >= (size_t)p->y_width)
        columns = (size_t)p->y_width;
    else if (columns > MIDGE_TILE)
        columns -= columns % MIDGE_TILE;
    const size_t pitch = ((columns - 1) * sx + kw) * C; /* of a patch */
    if (columns == (size_t)p->y_width)
        rows = w.patch ? (block * w.depth / pitch - kh) / sy + 1 : block / columns;
    w.columns = (int32_t)columns;
    w.rows = rows < p->y_height ? (int32_t)rows : (int32_t)p->y_height;
    w.run = w.patch ? kw * C : w.depth;
    w.runs = w.patch ? kh : 1;
    w.run_step = w.patch ? pitch : 0;
    w.column_step = w.patch ? sx * C : w.depth;
    w.row_step = w.patch ? sy * pitch : columns * w.depth;
    return w;
}

/* Writes `count` pixels of an image row from column `start` on, which may lie beside the image. */
static inline void midge_lay_row(const midge_conv *p, const int8_t *x, int32_t start, int32_t count,
                                 midge_element *to) {
    const midge_element padding = (midge_element)(p->x_zero_point + 128);
    const int32_t left = start < 0 ? midge_least(-start, count) : 0;
    const int32_t inside = midge_least(count, p->x_width - start);
    if (left > 0)
        midge_fill(to, padding, (size_t)left * p->channels);
    if (inside > left)
        midge_widen(to + (size_t)left * p->channels, x + (size_t)(start + left) * p->channels,
                    (size_t)(inside - left) * p->channels);
    const int32_t end = inside > left ? inside : left;
    if (count > end)
        midge_fill(to + (size_t)end * p->channels, padding, (size_t)(count - end) * p->channels);
}

/* Lays the part of the image that a block's windows cover. */
static inline void midge_lay_patch(const midge_conv *p, const midge_windows *w,
                                   const midge_block *b) {
    const uint32_t image = b->row / p->y_height * (uint32_t)p->x_height;
    const int32_t top = (int32_t)(b->row % p->y_height) * p->stride_y - p->top;
    const int32_t rows = (b->rows - 1) * p->stride_y + p->kernel_height;
    const int32_t columns = (b->columns - 1) * p->stride_x + p->kernel_width;
    midge_element *to = w->codes;
    for (int32_t y = top; y < top + rows; ++y, to += w->run_step) {
        if (y < 0 || y >= p->x_height)
            midge_fill(to, (midge_element)(p->x_zero_point + 128), (size_t)columns * p->channels);
        else
            midge_lay_row(p, midge_row(&p->x, image + (uint32_t)y),
                          b->column * p->stride_x - p->left, columns, to);
    }
}

/* Lays one row of the kernel into the windows of a row of pixels. */
static inline void midge_lay_taps(const midge_conv *p, const midge_windows *w, const int8_t *x,
                                  const midge_block *b, midge_element *to) {
    int32_t start = b->column * p->stride_x - p->left;
    for (int32_t i = 0; i < b->columns; ++i, to += w->depth, start += p->stride_x) {
        if (p->dilation_x == 1 && start >= 0 && start + p->kernel_width <= p->x_width)
            midge_widen(to, x + (size_t)start * p->channels, (size_t)p->kernel_width * p->channels);
        else if (p->dilation_x == 1)
            midge_lay_row(p, x, start, p->kernel_width, to);
        else
            for (int32_t kx = 0; kx < p->kernel_width; ++kx)
                midge_lay_row(p, x, start + kx * p->dilation_x, 1, to + (size_t)kx * p->channels);
    }
}

/* Lays a window of its own for each pixel of a block. */
static inline void midge_lay_windows(const midge_conv *p, const midge_windows *w,
                                     const midge_block *b) {
    const uint32_t image = b->row / p->y_height * (uint32_t)p->x_height;
    const size_t run = (size_t)p->kernel_width * p->channels;
    for (int32_t r = 0; r < b->rows; ++r) {
        const int32_t oy = (int32_t)(b->row % p->y_height) + r;
        midge_element *to = w->codes + (size_t)r * w->row_step;
        for (int32_t ky = 0; ky < p->kernel_height; ++ky, to += run) {
            const int32_t y = oy * p->stride_y - p->top + ky * p->dilation_y;
            if (y >= 0 && y < p->x_height)
                midge_lay_taps(p, w, midge_row(&p->x, image + (uint32_t)y), b, to);
            else
                for (int32_t i = 0; i < b->columns; ++i)
                    midge_fill(to + (size_t)i * w->depth, (midge_element)(p->x_zero_point + 128),
                               run);
        }
    }
}

/* Starts the sums of every channel with what the zero point of the weights takes away: it, times
 * the codes of the window. */
static inline void midge_start_tile(const midge_windows *w, midge_tile *tile) {
    for (int i = 0; i < tile->count; ++i) {
        const midge_element *x = tile->x[i];
        uint32_t sum = 0;
        for (size_t run = 0; run < w->runs; ++run, x += w->run_step)
            sum += midge_sum(x, w->run);
        tile->start[i] = 0u - (uint32_t)w->w_zero_point * sum;
    }
}

/* Makes a tile and empties it. */
static inline void midge_end_tile(const midge_conv *p, const midge_windows *w, midge_tile *tile,
                                  size_t first, size_t last) {
    if (w->w_zero_point != 0)
        midge_start_tile(w, tile);
    midge_make_tile(p, w, tile, first, last);
    tile->count = 0;
}

/* Multiplies a block whose windows are laid. */
static inline void midge_make_block(const midge_conv *p, const midge_windows *w,
                                    const midge_block *b) {
    const size_t fit = MIDGE_WEIGHT_BYTES / w->depth / MIDGE_PANEL * MIDGE_PANEL;
    const size_t chunk = fit > 0 ? fit : MIDGE_PANEL;
    for (size_t first = 0; first < p->out; first += chunk) {
        const size_t last = p->out - first < chunk ? p->out : first + chunk;
        midge_tile tile;
        tile.count = 0;
        memset(tile.start, 0, sizeof tile.start);
        for (int32_t r = 0; r < b->rows; ++r) {
            const midge_element *x = w->codes + (size_t)r * w->row_step;
            int8_t *y = midge_row(&p->y, b->row + (uint32_t)r) + (size_t)b->column * p->out;
            for (int32_t i = 0; i < b->columns; ++i, x += w->column_step, y += p->out) {
                tile.x[tile.count] = x;
                tile.y[tile.count] = y;
                if (++tile.count == MIDGE_TILE)
                    midge_end_tile(p, w, &tile, first, last);
            }
        }
        if (tile.count > 0)
            midge_end_tile(p, w, &tile, first, last);
    }
}

/* The whole kernel. */
static inline void midge_vector_conv(const midge_strip *strip, const midge_op *op) {
    midge_conv p = midge_conv_at(strip, op);
    uint32_t row = strip->first, last = strip->last;
    if (midge_flatten(&p, row, last)) {
        row = 0;
        last = 1;
    }
    const uint32_t block = op->word[MIDGE_CONV_BLOCK];
    midge_windows w = midge_windows_for(&p, (midge_element *)(void *)midge_scratch(strip, op),
                                        (size_t)midge_low(block));
    w.w_zero_point = (int16_t)midge_high(block);
    const size_t taps = (size_t)(p.kernel_height * p.kernel_width) * p.channels;
    if (!w.patch) /* what fills the windows up to a multiple of 4 counts nothing */
        for (size_t i = taps; i < (size_t)(w.rows * w.columns) * w.depth; i += w.depth)
            midge_fill(w.codes + i, 0, w.depth - taps);
    while (row < last) {
        const uint32_t left = p.y_height - row % p.y_height; /* rows of this image */
        midge_block b = {row, 0,
                         midge_least(w.rows, (int32_t)(left < last - row ? left : last - row)), 0};
        for (; b.column < p.y_width; b.column += b.columns) {
            b.columns = midge_least(w.columns, p.y_width - b.column);
            if (w.patch)
                midge_lay_patch(&p, &w, &b);
            else
                midge_lay_windows(&p, &w, &b);
            midge_make_block(&p, &w, &b);
        }
        row += (uint32_t)b.rows;
    }
}

#endif
