/* midge_pthreads.h - a pool of POSIX threads for midge_run_parallel.
 *
 *     midge_pthreads pool;
 *     if (midge_pthreads_start(&pool, 4) != 0) return 1;
 *     const midge_threads threads = {midge_pthreads_for, &pool, pool.threads, scratch};
 *     ...
 *     midge_pthreads_stop(&pool);
 *
 * The threads watch for work for some microseconds before they sleep, so that the steps of a
 * network follow one another without waiting for the scheduler. Where they come late the caller has
 * done their work. One pool serves one caller at a time.
 */
#ifndef MIDGE_PTHREADS_H
#define MIDGE_PTHREADS_H

#include <pthread.h>
#include <stdint.h>

#define MIDGE_PTHREADS_MAX 64u

typedef struct midge_pthreads {
    uint32_t threads; /* the caller is number 0 of them */
    pthread_t member[MIDGE_PTHREADS_MAX];
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint64_t ticket;   /* round, number of parts, next part: what threads take parts from */
    uint32_t sleeping; /* threads inside of pthread_cond_wait */
    uint32_t done;     /* parts of this round that are finished */
    uint32_t first;    /* what is added to the number of a part */
    int stopping;      /* no further round comes */
    void (*work)(void *argument, uint32_t index);
    void *argument;
} midge_pthreads;

/* Starts threads - 1 threads. Returns 0, or an errno value; then nothing needs to be stopped. */
int midge_pthreads_start(midge_pthreads *pool, uint32_t threads);

/* A midge_parallel_for; `pool` is a midge_pthreads. */
void midge_pthreads_for(void *pool, uint32_t count, void (*work)(void *argument, uint32_t index),
                        void *argument);

/* Ends the threads and waits for them. */
void midge_pthreads_stop(midge_pthreads *pool);

#endif
