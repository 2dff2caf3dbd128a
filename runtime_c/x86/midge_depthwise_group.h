/* midge_depthwise_group.h - what 16 channels of a depthwise convolution are made from. Private. */
#ifndef MIDGE_DEPTHWISE_GROUP_H
#define MIDGE_DEPTHWISE_GROUP_H

#include "midge_kernel.h"

#define GROUP 16 /* channels */

/* The constants of 16 channels. */
typedef struct constants {
    const uint32_t *bias, *m;
    const int8_t *weight;
    size_t pitch;         /* from tap to tap */
    int32_t w_zero_point; /* midge_depthwise_zmm.h serves 0 only */
} constants;

#endif
