/* midge.h - runs a neural network that `midge compile` wrote.
 *
 * The caller owns all memory: the runtime allocates nothing and keeps no state outside the session,
 * so any number of sessions may run at once, each on its own arena. The model is const data and may
 * stay in flash. A run needs no memory but the arena and a little stack.
 *
 *     static MIDGE_ALIGN(16) uint8_t arena[KWS_ARENA_BYTES];
 *     midge_session session;
 *     if (midge_open(&session, &kws_model, arena, sizeof arena) != MIDGE_OK) return 1;
 *     memcpy(midge_input(&session, 0), samples, KWS_INPUT_0_BYTES);
 *     if (midge_run(&session) != MIDGE_OK) return 1;
 *     const int8_t *scores = (const int8_t *)midge_output(&session, 0);
 */
#ifndef MIDGE_H
#define MIDGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the model format: a model runs with the runtime of the same major version (the upper
 * 16 bits) and of the same or a later minor version. */
#define MIDGE_ABI 0x00010000u

/* Alignment of the arena in bytes. */
#define MIDGE_ARENA_ALIGNMENT 16u

/* Largest number of dimensions of an input or output. */
#define MIDGE_MAX_RANK 8

/* MIDGE_ALIGN(16) before a declaration aligns the object. */
#if defined(__cplusplus) && __cplusplus >= 201103L
#define MIDGE_ALIGN(bytes) alignas(bytes)
#elif defined(__GNUC__)
#define MIDGE_ALIGN(bytes) __attribute__((aligned(bytes)))
#elif defined(_MSC_VER)
#define MIDGE_ALIGN(bytes) __declspec(align(bytes))
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define MIDGE_ALIGN(bytes) _Alignas(bytes)
#else
#define MIDGE_ALIGN(bytes) /* midge_open reports an arena that is not aligned */
#endif

/* What a function reports. */
typedef enum midge_status {
    MIDGE_OK = 0,   /* done */
    MIDGE_MORE,     /* midge_step: one step is done, more remain */
    MIDGE_EARG,     /* a null pointer where an object is needed */
    MIDGE_EARENA,   /* the arena is smaller than the model's NAME_ARENA_BYTES */
    MIDGE_EALIGN,   /* the arena is not aligned to MIDGE_ARENA_ALIGNMENT bytes */
    MIDGE_EVERSION, /* the model was written for another version of this runtime */
    MIDGE_ETARGET   /* this processor, or the model, lacks the instruction set asked for */
} midge_status;

/* Element types of inputs and outputs. */
typedef enum midge_dtype { MIDGE_INT8 = 0, MIDGE_UINT8, MIDGE_INT32, MIDGE_FLOAT32 } midge_dtype;

/* What there is to know about one input or output. Elements lie in row-major order. */
typedef struct midge_tensor_info {
    const char *name;               /* as in the ONNX file, UTF-8 */
    uint32_t offset;                /* where it begins in the arena, in bytes */
    uint32_t bytes;                 /* its size */
    uint8_t dtype;                  /* a midge_dtype */
    uint8_t rank;                   /* number of dimensions, at most MIDGE_MAX_RANK */
    uint32_t shape[MIDGE_MAX_RANK]; /* its dimensions, as in the ONNX file; the rest is 0 */
    float scale;                    /* real value = (code - zero_point) * scale; */
    int32_t zero_point;             /* 1 and 0 where the elements are the real values */
} midge_tensor_info;

/* A compiled network: `extern const midge_model NAME_model` in NAME.h. */
typedef struct midge_model midge_model;

struct midge_strip; /* of midge_model.h */
struct midge_op;

/* One use of a model. The fields are private; a copy is another session on the same arena. */
typedef struct midge_session {
    const midge_model *model;
    uint8_t *arena;
    void (*const *kernels)(const struct midge_strip *, const struct midge_op *);
    uint32_t next;
} midge_session;

/* Binds a model to an arena. Constant time; does not touch the arena. Of the instruction sets that
 * a model was compiled for it chooses the best that this processor has; all give the same bits.
 *
 * session: is filled in.
 * model:   stays in use by the session.
 * arena:   aligned to MIDGE_ARENA_ALIGNMENT bytes; stays in use by the session.
 * bytes:   size of the arena, at least NAME_ARENA_BYTES.
 * Returns MIDGE_OK, MIDGE_EARG, MIDGE_EARENA, MIDGE_EALIGN or MIDGE_EVERSION; the session may be
 * used only after MIDGE_OK.
 */
midge_status midge_open(midge_session *session, const midge_model *model, void *arena,
                        size_t bytes);

/* Chooses another instruction set: a bit of what midge_model.levels returns, see midge_x86.h.
 *
 * Returns MIDGE_OK, MIDGE_EARG or MIDGE_ETARGET, which changes nothing.
 */
midge_status midge_select(midge_session *session, uint32_t level);

/* Runs the whole network once. Every input must have been written since the previous run, whose
 * intermediate results may lie over it.
 *
 * Returns MIDGE_OK or MIDGE_EARG.
 */
midge_status midge_run(midge_session *session);

/* Runs the next operator only, for cooperative schedulers and for tracing. After the last one the
 * outputs are valid and the next call starts a new run.
 *
 * Returns MIDGE_MORE, MIDGE_OK after the last operator, or MIDGE_EARG.
 */
midge_status midge_step(midge_session *session);

/* Where to write input `index` (graph order). Valid until midge_run or midge_step.
 *
 * Returns a pointer aligned to MIDGE_ARENA_ALIGNMENT, or NULL when there is no such input.
 */
void *midge_input(const midge_session *session, uint32_t index);

/* Where output `index` (graph order) lies after a run, until the next input is written.
 *
 * Returns NULL when there is no such output.
 */
const void *midge_output(const midge_session *session, uint32_t index);

/* Describes the inputs, then the outputs, of a model in graph order.
 *
 * Returns NULL when `index` is past the last output.
 */
const midge_tensor_info *midge_info(const midge_model *model, uint32_t index);

#ifdef __cplusplus
}
#endif

#endif
