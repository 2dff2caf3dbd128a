/* midge_fully_connected_f32.c - Y [rows, channels] = X [rows, depth] times W^T, and 1 x 1 Conv. */
#include "midge_panel_f32.h"

void midge_fully_connected_f32(const midge_strip *strip, const midge_op *op) {
    midge_fully_connected(strip, op, 0);
}
