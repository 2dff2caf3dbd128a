/* midge_fully_connected_dynamic.c - int8 matrix product of codes quantized at run time. */
#include "midge_dynamic.h"

void midge_fully_connected_dynamic(const midge_strip *strip, const midge_op *op) {
    midge_dynamic_product(strip, op, midge_dot4_s8);
}
