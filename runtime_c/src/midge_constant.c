/* midge_constant.c - copies a constant into the arena. */
#include "midge_kernel.h"

void midge_constant(const midge_memory *memory, const midge_op *op) {
    memcpy(memory->arena + op->word[MIDGE_OP_Y], memory->data + op->word[MIDGE_OP_DATA],
           op->word[MIDGE_CONSTANT_BYTES]);
}
