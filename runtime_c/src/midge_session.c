/* midge_session.c - opens a model and runs its records in order. */
#include "midge_model.h"

#define ABI_MAJOR(abi) ((abi) >> 16)

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
    return MIDGE_OK;
}

midge_status midge_step(midge_session *session) {
    if (!session)
        return MIDGE_EARG;
    const midge_model *model = session->model;
    if (session->next < model->op_count) {
        const midge_memory memory = {session->arena, model->data};
        const midge_op *op = &model->ops[session->next++];
        model->kernels[op->word[MIDGE_OP_KERNEL]](&memory, op);
    }
    if (session->next < model->op_count)
        return MIDGE_MORE;
    session->next = 0;
    return MIDGE_OK;
}

midge_status midge_run(midge_session *session) {
    if (!session)
        return MIDGE_EARG;
    const midge_model *model = session->model;
    const midge_memory memory = {session->arena, model->data};
    for (uint32_t i = 0; i < model->op_count; ++i)
        model->kernels[model->ops[i].word[MIDGE_OP_KERNEL]](&memory, &model->ops[i]);
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
