/* midge_parallel.c - runs the records of a model, large ones in several strips at the same time. */
#include "midge_parallel.h"

#include "midge_model.h"

/* One step that is split. */
typedef struct job {
    const midge_session *session;
    const midge_threads *threads;
    const midge_op *op;
    uint32_t parts;
} job;

/* Makes part `index` of the rows of a step. */
static void run_part(void *argument, uint32_t index) {
    const job *j = (const job *)argument;
    const midge_model *model = j->session->model;
    const uint32_t word = j->op->word[MIDGE_OP_KERNEL], rows = word >> 16;
    midge_strip strip;
    strip.arena = j->session->arena;
    strip.data = model->data;
    strip.kernels = j->session->kernels;
    strip.first = rows * index / j->parts;
    strip.last = rows * (index + 1u) / j->parts;
    strip.scratch = NULL;
    if (index != 0)
        strip.scratch = j->threads->scratch + (size_t)(index - 1u) * model->scratch_bytes;
    j->session->kernels[word & (MIDGE_SPLIT - 1u)](&strip, j->op);
}

midge_status midge_run_parallel(midge_session *session, const midge_threads *threads) {
    if (!session || !threads || !threads->parallel_for || threads->threads == 0)
        return MIDGE_EARG;
    const midge_model *model = session->model;
    if (threads->threads > 1 && model->scratch_bytes != 0) {
        if (!threads->scratch)
            return MIDGE_EARG;
        if ((uintptr_t)threads->scratch % MIDGE_ARENA_ALIGNMENT)
            return MIDGE_EALIGN;
    }
    job j = {session, threads, NULL, 0};
    for (uint32_t i = 0; i < model->op_count; ++i) {
        const uint32_t word = model->ops[i].word[MIDGE_OP_KERNEL], rows = word >> 16;
        j.op = &model->ops[i];
        j.parts = word & MIDGE_SPLIT ? threads->threads : 1u;
        j.parts = j.parts < rows ? j.parts : rows;
        if (j.parts > 1)
            threads->parallel_for(threads->context, j.parts, run_part, &j);
        else {
            j.parts = 1;
            run_part(&j, 0);
        }
    }
    session->next = 0;
    return MIDGE_OK;
}
