/* midge_fully_connected_f32_s8.c - a float32 matrix product with int8 weights. */
#include "midge_panel_f32.h"

void midge_fully_connected_f32_s8(const midge_strip *strip, const midge_op *op) {
    midge_fully_connected(strip, op, 1);
}
