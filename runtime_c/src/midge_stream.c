/* midge_stream.c - carries out a chain of records strip by strip, so that what lies between them
 * needs a few rows only. Nothing is computed twice. */
#include "midge_kernel.h"

/* Records of one stream, the words that link them, and how many rows each has made. */
typedef struct stream {
    const midge_op *ops;
    const uint32_t *links;
    uint16_t done[MIDGE_STREAM_MAX];
} stream;

/* The row at which the next strip of record i ends, or 0 where it is complete or lacks input. */
static uint32_t next_strip(const stream *s, uint32_t i) {
    const uint32_t *link = s->links + i * MIDGE_LINK_WORDS;
    const uint32_t rows = (uint32_t)midge_high(s->ops[i].word[MIDGE_OP_KERNEL]);
    uint32_t end = s->done[i] + (uint32_t)midge_low(link[MIDGE_LINK_STRIP]);
    if (s->done[i] == rows)
        return 0;
    end = end < rows ? end : rows;
    const int32_t need = (int32_t)(end - 1u) * midge_high(link[MIDGE_LINK_STRIP]) +
                         midge_signed(link[MIDGE_LINK_REACH]);
    for (uint32_t inputs = link[MIDGE_LINK_INPUTS]; inputs != 0; inputs >>= 16) {
        if ((inputs & 0xFFFFu) == 0)
            continue;
        const uint32_t from = (inputs & 0xFFFFu) - 1u;
        const int32_t all = midge_high(s->ops[from].word[MIDGE_OP_KERNEL]);
        if (s->done[from] < (need < all ? need : all))
            return 0;
    }
    return end;
}

void midge_stream(const midge_strip *strip, const midge_op *op) {
    stream s = {op + op->word[MIDGE_STREAM_FIRST], strip->data + op->word[MIDGE_OP_DATA], {0}};
    const uint32_t count = op->word[MIDGE_STREAM_COUNT];
    midge_strip part = *strip;
    uint32_t i = count;
    while (i-- > 0) {
        const uint32_t end = next_strip(&s, i);
        if (end == 0)
            continue;
        part.first = s.done[i];
        part.last = end;
        s.done[i] = (uint16_t)end;
        strip->kernels[midge_low(s.ops[i].word[MIDGE_OP_KERNEL])](&part, &s.ops[i]);
        i = count;
    }
}
