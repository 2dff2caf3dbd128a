/* midge_session.c - opens a model and runs its records in order. */
#include "midge_model.h"

#define ABI_MAJOR(abi) ((abi) >> 16)

/* Carries out one step. */
static void run_op(const midge_session *session, const midge_op *op) {
    const uint32_t word = op->word[MIDGE_OP_KERNEL];
    midge_strip strip;
    strip.arena = session->arena;
    strip.data = session->model->data;
    strip.kernels = session->kernels;
    strip.first = 0;
    strip.last = word >> 16;
    strip.scratch = NULL;
    session->kernels[word & (MIDGE_SPLIT - 1u)](&strip, op);
}

midge_status midge_open(midge_session *session, const midge_model *model, void *arena,
                        size_t bytes) {
    if (!session || !model || !arena)
        return MIDGE_EARG;
    if (ABI_MAJOR(model->abi) != ABI_MAJOR(MIDGE_ABI) || model->abi > MIDGE_ABI)
        return MIDGE_EVERSION;
    if ((uintptr_t)arena % MIDGE_ARENA_ALIGNMENT)
        return MIDGE_EALIGN;
    if (bytes < model->arena_bytes)
        return MIDGE_EARENA;
    session->model = model;
    session->arena = (uint8_t *)arena;
    session->next = 0;
    uint32_t best = 0;
    for (uint32_t levels = model->levels ? model->levels() : 0; levels > 1; levels >>= 1)
        ++best;
    session->kernels = model->kernels + best * model->kernel_count;
    return MIDGE_OK;
}

midge_status midge_select(midge_session *session, uint32_t level) {
    if (!session)
        return MIDGE_EARG;
    const midge_model *model = session->model;
    const uint32_t levels = model->levels ? model->levels() : 1u;
    if (level > 31u || !(levels >> level & 1u))
        return MIDGE_ETARGET;
    session->kernels = model->kernels + level * model->kernel_count;
    return MIDGE_OK;
}

midge_status midge_step(midge_session *session) {
    if (!session)
        return MIDGE_EARG;
    const midge_model *model = session->model;
    if (session->next < model->op_count)
        run_op(session, &model->ops[session->next++]);
    if (session->next < model->op_count)
        return MIDGE_MORE;
    session->next = 0;
    return MIDGE_OK;
}

midge_status midge_run(midge_session *session) {
    if (!session)
        return MIDGE_EARG;
    const midge_model *model = session->model;
    for (uint32_t i = 0; i < model->op_count; ++i)
        run_op(session, &model->ops[i]);
    session->next = 0;
    return MIDGE_OK;
}

const midge_tensor_info *midge_info(const midge_model *model, uint32_t index) {
    if (!model || index >= (uint32_t)model->input_count + model->output_count)
        return NULL;
    return &model->tensors[index];
}

void *midge_input(const midge_session *session, uint32_t index) {
    if (!session || index >= session->model->input_count)
        return NULL;
    return session->arena + session->model->tensors[index].offset;
}

const void *midge_output(const midge_session *session, uint32_t index) {
    if (!session || index >= session->model->output_count)
        return NULL;
    return session->arena + session->model->tensors[session->model->input_count + index].offset;
}
