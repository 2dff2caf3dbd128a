/* midge_pthreads.c - a pool of POSIX threads that watches for work before it sleeps.
 *
 * Threads take the parts of a round one by one, the caller too: where the others sleep or wait for
 * a processor, the caller makes all parts itself and waits for nobody who has not begun.
 */
#include "midge_pthreads.h"

#include <errno.h>
#include <sched.h>

#define SPINS 20000 /* looks at the ticket, some tens of microseconds */

/* A ticket: round in the upper half, then 16 bits each for the number of parts and the next one. */
#define PARTS_MAX 0xFFFFu

static uint32_t ticket_round(uint64_t ticket) {
    return (uint32_t)(ticket >> 32);
}

static uint32_t ticket_parts(uint64_t ticket) {
    return (uint32_t)(ticket >> 16) & PARTS_MAX;
}

static uint32_t ticket_next(uint64_t ticket) {
    return (uint32_t)ticket & PARTS_MAX;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Waits until the round is not `seen`, and returns it. */
static uint32_t next_round(midge_pthreads *pool, uint32_t seen) {
    uint32_t round;
    for (int i = 0; i < SPINS; ++i, relax())
        if ((round = ticket_round(__atomic_load_n(&pool->ticket, __ATOMIC_ACQUIRE))) != seen)
            return round;
    pthread_mutex_lock(&pool->lock);
    ++pool->sleeping;
    while ((round = ticket_round(__atomic_load_n(&pool->ticket, __ATOMIC_ACQUIRE))) == seen)
        pthread_cond_wait(&pool->wake, &pool->lock);
    --pool->sleeping;
    pthread_mutex_unlock(&pool->lock);
    return round;
}

/* Begins a round of `parts`; what they need has been written to the pool. */
static void begin_round(midge_pthreads *pool, uint32_t parts) {
    pthread_mutex_lock(&pool->lock);
    const uint64_t last = __atomic_load_n(&pool->ticket, __ATOMIC_RELAXED);
    const uint64_t round = (uint32_t)(ticket_round(last) + 1u);
    __atomic_store_n(&pool->ticket, round << 32 | (uint64_t)parts << 16, __ATOMIC_RELEASE);
    if (pool->sleeping != 0)
        pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

/* Makes parts of the present round until none is left. A round cannot end before a part that was
 * taken is finished, so that work and argument are those of the ticket. */
static void run_parts(midge_pthreads *pool) {
    uint64_t ticket = __atomic_load_n(&pool->ticket, __ATOMIC_ACQUIRE);
    while (ticket_next(ticket) < ticket_parts(ticket)) {
        if (!__atomic_compare_exchange_n(&pool->ticket, &ticket, ticket + 1u, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE))
            continue;
        pool->work(pool->argument, pool->first + ticket_next(ticket));
        __atomic_fetch_add(&pool->done, 1u, __ATOMIC_RELEASE);
        ticket = __atomic_load_n(&pool->ticket, __ATOMIC_ACQUIRE);
    }
}

static void *run_thread(void *argument) {
    midge_pthreads *pool = (midge_pthreads *)argument;
    uint32_t round = 0;
    for (;;) {
        round = next_round(pool, round);
        if (__atomic_load_n(&pool->stopping, __ATOMIC_RELAXED))
            return NULL;
        run_parts(pool);
    }
}

int midge_pthreads_start(midge_pthreads *pool, uint32_t threads) {
    if (threads == 0 || threads > MIDGE_PTHREADS_MAX)
        return EINVAL;
    pool->ticket = 0;
    pool->sleeping = pool->done = 0;
    pool->stopping = 0;
    pool->threads = 1;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    for (uint32_t i = 1; i < threads; ++i) {
        const int error = pthread_create(&pool->member[i], NULL, run_thread, pool);
        if (error != 0) {
            midge_pthreads_stop(pool);
            return error;
        }
        ++pool->threads;
    }
    return 0;
}

/* Carries out at most PARTS_MAX parts. */
static void run_round(midge_pthreads *pool, uint32_t parts) {
    __atomic_store_n(&pool->done, 0, __ATOMIC_RELAXED);
    begin_round(pool, parts);
    run_parts(pool);
    for (int i = 0; __atomic_load_n(&pool->done, __ATOMIC_ACQUIRE) != parts; ++i)
        if (i < SPINS)
            relax();
        else
            sched_yield(); /* whoever has the part may need this processor */
}

void midge_pthreads_for(void *context, uint32_t count, void (*work)(void *argument, uint32_t index),
                        void *argument) {
    midge_pthreads *pool = (midge_pthreads *)context;
    pool->work = work;
    pool->argument = argument;
    for (uint32_t first = 0, parts; first < count; first += parts) {
        parts = count - first < PARTS_MAX ? count - first : PARTS_MAX;
        pool->first = first;
        run_round(pool, parts);
    }
}

void midge_pthreads_stop(midge_pthreads *pool) {
    __atomic_store_n(&pool->stopping, 1, __ATOMIC_RELAXED);
    begin_round(pool, 0);
    for (uint32_t i = 1; i < pool->threads; ++i)
        pthread_join(pool->member[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
}
