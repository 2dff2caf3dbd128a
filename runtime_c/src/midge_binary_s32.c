/* midge_binary_s32.c - y = a op b on int32, element by element, axes of size 1 repeated. */
#include "midge_word.h"

/* The rest of a division towards 0; 0 where b is 0. */
static int64_t rest(int64_t a, int64_t b) {
    return b == 0 ? 0 : a % b;
}

static int64_t arithmetic(uint32_t kind, int64_t a, int64_t b) {
    switch (kind) {
    case MIDGE_WORD_ADD:
        return a + b;
    case MIDGE_WORD_SUB:
        return a - b;
    case MIDGE_WORD_MUL:
        return a * b;
    case MIDGE_WORD_DIV:
        return b == 0 ? 0 : a / b;
    case MIDGE_WORD_MOD:
        return rest(a, b) != 0 && (rest(a, b) < 0) != (b < 0) ? rest(a, b) + b : rest(a, b);
    case MIDGE_WORD_FMOD:
        return rest(a, b);
    case MIDGE_WORD_MAX:
        return a > b ? a : b;
    default:
        return a < b ? a : b; /* MIDGE_WORD_MIN */
    }
}

static uint32_t combined(uint32_t kind, int32_t a, int32_t b) {
    switch (kind) {
    case MIDGE_WORD_EQUAL:
        return a == b;
    case MIDGE_WORD_LESS:
        return a < b;
    case MIDGE_WORD_LESS_EQUAL:
        return a <= b;
    case MIDGE_WORD_AND:
        return (uint32_t)a & (uint32_t)b;
    case MIDGE_WORD_OR:
        return (uint32_t)a | (uint32_t)b;
    case MIDGE_WORD_XOR:
        return (uint32_t)a ^ (uint32_t)b;
    default:
        return (uint32_t)(uint64_t)arithmetic(kind, a, b);
    }
}

void midge_binary_s32(const midge_strip *strip, const midge_op *op) {
    const midge_word *a = midge_words_at(strip, op, MIDGE_OP_X);
    const midge_word *b = midge_words_at(strip, op, MIDGE_BINARY_B);
    midge_word *y = midge_words_at(strip, op, MIDGE_OP_Y);
    midge_walk walk = midge_walk_begin(op);
    for (; !walk.done; midge_walk_next(&walk))
        *y++ = (int32_t)combined(op->word[MIDGE_BINARY_KIND], a[walk.a], b[walk.b]);
}
