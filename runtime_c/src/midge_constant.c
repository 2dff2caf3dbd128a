/* midge_constant.c - copies a constant into the arena. */
#include "midge_kernel_f32.h"

void midge_constant(const midge_memory *memory, const midge_op *op) {
    memcpy(memory->arena + op->word[MIDGE_OP_Y], memory->data + op->word[MIDGE_OP_DATA],
           4 * (size_t)op->word[MIDGE_MAP_COUNT]);
}
