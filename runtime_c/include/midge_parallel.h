/* midge_parallel.h - runs one network on several threads, which the application brings along.
 *
 *     static MIDGE_ALIGN(16) uint8_t scratch[3 * KWS_SCRATCH_BYTES];
 *     const midge_threads threads = {my_parallel_for, my_pool, 4, scratch};
 *     midge_run_parallel(&session, &threads);
 *
 * midge_pthreads.h is a parallel_for for hosts. The bits are those of midge_run.
 */
#ifndef MIDGE_PARALLEL_H
#define MIDGE_PARALLEL_H

#include "midge.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls work(argument, i) for every i below `count`, at the same time where it can, and returns
 * when all are done. What work wrote must then be visible to the caller. */
typedef void (*midge_parallel_for)(void *context, uint32_t count,
                                   void (*work)(void *argument, uint32_t index), void *argument);

/* How to run at the same time. */
typedef struct midge_threads {
    midge_parallel_for parallel_for;
    void *context;    /* passed on to parallel_for */
    uint32_t threads; /* into how many parts a step is split, at most */
    uint8_t *scratch; /* (threads - 1) * NAME_SCRATCH_BYTES, aligned as the arena, no two runs' */
} midge_threads;

/* Runs the whole network once, as midge_run; steps with much work are split into strips of rows.
 *
 * Returns MIDGE_OK, MIDGE_EARG or MIDGE_EALIGN.
 */
midge_status midge_run_parallel(midge_session *session, const midge_threads *threads);

#ifdef __cplusplus
}
#endif

#endif
