/* midge_model_general.h - records on words: recurrent layers, integers and truths, selections.
 *
 * They have the form that midge_model.h describes; only models with such steps include this file.
 * Integers and truths of the network are int32 here; a truth is 0 or 1.
 */
#ifndef MIDGE_MODEL_GENERAL_H
#define MIDGE_MODEL_GENERAL_H

#include "midge_model_f32.h"

/* midge_gru_f32, midge_lstm_f32 and midge_rnn_f32: one direction over X [T, B, I]. Y [T, B, H]
 * holds h after each step, behind it (not for the RNN) [B, H]: the last cell state of an LSTM, the
 * last r * h of a GRU. Data: float32 W [gates, H, I], R [gates, H, H], bias [gates, H], then for an
 * LSTM peepholes [3, H] (zeros where there are none), for a GRU the bias [H] of h that is reset. */
enum {
    MIDGE_RECURRENT_STEPS = 4,
    MIDGE_RECURRENT_BATCH = 5,
    MIDGE_RECURRENT_INPUTS = 6,
    MIDGE_RECURRENT_HIDDEN = 7,
    MIDGE_RECURRENT_FLAGS = 8,
    MIDGE_RECURRENT_H = 9,  /* arena offset of the first h, with MIDGE_RECURRENT_HAS_H */
    MIDGE_RECURRENT_C = 10, /* arena offset of the first c, with MIDGE_RECURRENT_HAS_C */
};

enum {
    MIDGE_RECURRENT_HAS_H = 1,
    MIDGE_RECURRENT_HAS_C = 2,
    MIDGE_RECURRENT_BACKWARD = 4,    /* from the last step to the first */
    MIDGE_RECURRENT_RESET_AFTER = 8, /* GRU: r * (h R + b), not (r * h) R + b */
    MIDGE_RECURRENT_RELU = 16        /* RNN: Relu, not tanh */
};

/* midge_resample_f32: Y [outer, m, inner] = sum over taps of weight * X [outer, index, inner].
 * Data: uint32 index [m, taps], float32 weight [m, taps]. midge_gather: Y [outer, m, inner] =
 * X [outer, index[m], inner]; X is in the arena or, with MIDGE_GATHER_TABLE, among the constants.
 * midge_gather_elements: index [outer, m, inner]. An index below 0 counts from the end; one outside
 * is moved to the nearest. Elements are words. */
enum {
    MIDGE_PICK_OUTER = 4,
    MIDGE_PICK_FROM = 5,  /* size of X along the axis */
    MIDGE_PICK_COUNT = 6, /* size of Y along the axis: m */
    MIDGE_PICK_INNER = 7,
    MIDGE_PICK_TAPS = 8,  /* midge_resample_f32 */
    MIDGE_PICK_INDEX = 8, /* arena offset of int32 indices */
    MIDGE_PICK_TABLE = 9, /* 1 where X is a constant at MIDGE_OP_DATA */
};

/* midge_compare_f32 and midge_binary_s32: words MIDGE_BINARY_B to MIDGE_BINARY_B_PITCH without
 * flags; Y is int32. */
typedef enum midge_word_kind {
    MIDGE_WORD_EQUAL = 0, /* up to LESS_EQUAL also of midge_compare_f32 */
    MIDGE_WORD_LESS,
    MIDGE_WORD_LESS_EQUAL,
    MIDGE_WORD_ADD,
    MIDGE_WORD_SUB,
    MIDGE_WORD_MUL,
    MIDGE_WORD_DIV,  /* towards 0; 0 where b is 0 */
    MIDGE_WORD_MOD,  /* with the sign of b; 0 where b is 0 */
    MIDGE_WORD_FMOD, /* with the sign of a; 0 where b is 0 */
    MIDGE_WORD_MAX,
    MIDGE_WORD_MIN,
    MIDGE_WORD_AND,
    MIDGE_WORD_OR,
    MIDGE_WORD_XOR
} midge_word_kind;

/* midge_cast: MIDGE_MAP_COUNT and this. */
enum {
    MIDGE_CAST_KIND = 5, /* a midge_cast_kind */
};

typedef enum midge_cast_kind {
    MIDGE_CAST_TO_S32 = 0, /* towards 0, saturating, NaN gives 0 */
    MIDGE_CAST_TO_F32,
    MIDGE_CAST_TRUTH_F32, /* 1 where it is not 0 */
    MIDGE_CAST_TRUTH_S32
} midge_cast_kind;

/* midge_where: MIDGE_MAP_COUNT words, of A where the condition X is not 0, else of B. */
enum {
    MIDGE_WHERE_A = 5, /* arena offset */
    MIDGE_WHERE_B = 6, /* arena offset */
};

/* midge_arg_f32, midge_arg_s8: words MIDGE_REDUCE_OUTER to _INNER and these flags. Y is int32. */
enum {
    MIDGE_ARG_FLAGS = 7,
};
enum { MIDGE_ARG_SMALLEST = 1, MIDGE_ARG_LAST = 2 };

/* midge_top_f32: words MIDGE_REDUCE_OUTER to _INNER, flag MIDGE_ARG_SMALLEST and how many. Y is
 * int32 [outer, k, inner]. */
enum {
    MIDGE_TOP_K = 8,
};

/* midge_trig_f32: the words of midge_math_f32, with one of these kinds. */
typedef enum midge_trig_kind {
    MIDGE_UNARY_ASINH = 0,
    MIDGE_UNARY_ATAN,
    MIDGE_UNARY_COS,
    MIDGE_UNARY_COSH,
    MIDGE_UNARY_SIN,
    MIDGE_UNARY_SINH,
    MIDGE_UNARY_TAN,
    MIDGE_UNARY_ACOS,
    MIDGE_UNARY_ACOSH,
    MIDGE_UNARY_ASIN,
    MIDGE_UNARY_ATANH
} midge_trig_kind;

#ifdef __cplusplus
extern "C" {
#endif

void midge_arg_f32(const midge_strip *strip, const midge_op *op);
void midge_arg_s8(const midge_strip *strip, const midge_op *op);
void midge_binary_s32(const midge_strip *strip, const midge_op *op);
void midge_cast(const midge_strip *strip, const midge_op *op);
void midge_compare_f32(const midge_strip *strip, const midge_op *op);
void midge_gather(const midge_strip *strip, const midge_op *op);
void midge_gather_elements(const midge_strip *strip, const midge_op *op);
void midge_gru_f32(const midge_strip *strip, const midge_op *op);
void midge_lstm_f32(const midge_strip *strip, const midge_op *op);
void midge_resample_f32(const midge_strip *strip, const midge_op *op);
void midge_rnn_f32(const midge_strip *strip, const midge_op *op);
void midge_top_f32(const midge_strip *strip, const midge_op *op);
void midge_trig_f32(const midge_strip *strip, const midge_op *op);
void midge_where(const midge_strip *strip, const midge_op *op);

#ifdef __cplusplus
}
#endif

#endif
