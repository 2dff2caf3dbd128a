/* midge_pthreads.c - a pool of POSIX threads that watches for work before it sleeps.
 *
 * Thread i makes the parts i, i + threads, ... of every round: nothing is handed out, so a thread
 * needs to look at one counter only.
 */
#include "midge_pthreads.h"

#include <errno.h>

#define SPINS 20000 /* looks at the counter, some tens of microseconds */

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Returns the number of a round that is not `seen`. */
static uint32_t next_round(midge_pthreads *pool, uint32_t seen) {
    uint32_t round;
    for (int i = 0; i < SPINS; ++i, relax())
        if ((round = __atomic_load_n(&pool->round, __ATOMIC_ACQUIRE)) != seen)
            return round;
    pthread_mutex_lock(&pool->lock);
    ++pool->sleeping;
    while ((round = __atomic_load_n(&pool->round, __ATOMIC_ACQUIRE)) == seen)
        pthread_cond_wait(&pool->wake, &pool->lock);
    --pool->sleeping;
    pthread_mutex_unlock(&pool->lock);
    return round;
}

/* Begins a round whose work has been written to the pool. */
static void begin_round(midge_pthreads *pool) {
    __atomic_store_n(&pool->left, pool->threads - 1u, __ATOMIC_RELAXED);
    pthread_mutex_lock(&pool->lock);
    __atomic_store_n(&pool->round, pool->round + 1u, __ATOMIC_RELEASE);
    if (pool->sleeping != 0)
        pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static void run_parts(const midge_pthreads *pool, uint32_t first) {
    for (uint32_t i = first; i < pool->count; i += pool->threads)
        pool->work(pool->argument, i);
}

static void *run_thread(void *argument) {
    const midge_pthread *self = (const midge_pthread *)argument;
    midge_pthreads *pool = self->pool;
    uint32_t round = 0;
    for (;;) {
        round = next_round(pool, round);
        if (pool->count == 0)
            return NULL;
        run_parts(pool, self->index);
        __atomic_fetch_sub(&pool->left, 1u, __ATOMIC_RELEASE);
    }
}

int midge_pthreads_start(midge_pthreads *pool, uint32_t threads) {
    if (threads == 0 || threads > MIDGE_PTHREADS_MAX)
        return EINVAL;
    pool->round = pool->sleeping = pool->left = pool->count = 0;
    pool->threads = 1;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    for (uint32_t i = 1; i < threads; ++i) {
        midge_pthread *member = &pool->member[i];
        member->pool = pool;
        member->index = i;
        const int error = pthread_create(&member->thread, NULL, run_thread, member);
        if (error != 0) {
            midge_pthreads_stop(pool);
            return error;
        }
        ++pool->threads;
    }
    return 0;
}

void midge_pthreads_for(void *context, uint32_t count, void (*work)(void *argument, uint32_t index),
                        void *argument) {
    midge_pthreads *pool = (midge_pthreads *)context;
    if (count == 0)
        return;
    pool->count = count;
    pool->work = work;
    pool->argument = argument;
    begin_round(pool);
    run_parts(pool, 0);
    while (__atomic_load_n(&pool->left, __ATOMIC_ACQUIRE) != 0)
        relax();
}

void midge_pthreads_stop(midge_pthreads *pool) {
    pool->count = 0;
    begin_round(pool);
    for (uint32_t i = 1; i < pool->threads; ++i)
        pthread_join(pool->member[i].thread, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
}
