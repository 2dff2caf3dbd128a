/* midge_word.h - what the kernels of int32 words share: access and broadcasts. Private. */
#ifndef MIDGE_WORD_H
#define MIDGE_WORD_H

#include "midge_kernel_f32.h"
#include "midge_model_general.h"

/* An int32 in the arena, which is declared as bytes. */
#if defined(__GNUC__)
typedef int32_t __attribute__((__may_alias__)) midge_word;
#else
typedef int32_t midge_word;
#endif

/* Words of the arena at the offset that stands in word `index`. */
static inline midge_word *midge_words_at(const midge_strip *strip, const midge_op *op, int index) {
    return (midge_word *)(void *)(strip->arena + op->word[index]);
}

/* A walk over the elements of Y of a MIDGE_BINARY record, and where a and b stand. */
typedef struct midge_walk {
    const midge_op *op;
    uint32_t at[4];
    size_t a, b;
    int done;
} midge_walk;

static inline midge_walk midge_walk_begin(const midge_op *op) {
    const midge_walk walk = {op, {0, 0, 0, 0}, 0, 0, 0};
    return walk;
}

/* Elements from one place to the next along an axis, in a (`other` 0) or b (1). */
static inline size_t midge_walk_pitch(const midge_op *op, int axis, int other) {
    const uint32_t steps = op->word[MIDGE_BINARY_STEP];
    if (axis == 3)
        return other ? steps >> 16 : steps & 0xFFFFu;
    return op->word[(other ? MIDGE_BINARY_B_PITCH : MIDGE_BINARY_A_PITCH) + axis];
}

static inline void midge_walk_next(midge_walk *walk) {
    for (int axis = 3; axis >= 0; --axis) {
        const size_t a = midge_walk_pitch(walk->op, axis, 0);
        const size_t b = midge_walk_pitch(walk->op, axis, 1);
        walk->a += a;
        walk->b += b;
        if (++walk->at[axis] < walk->op->word[MIDGE_BINARY_SHAPE + axis])
            return;
        walk->a -= a * walk->at[axis];
        walk->b -= b * walk->at[axis];
        walk->at[axis] = 0;
    }
    walk->done = 1;
}

/* The place that an index means along an axis of `size`: from the end below 0, else the nearest. */
static inline size_t midge_place(int32_t index, uint32_t size) {
    const int64_t i = index < 0 ? (int64_t)index + size : index;
    return i < 0 ? 0 : i >= (int64_t)size ? size - 1u : (size_t)i;
}

#endif
