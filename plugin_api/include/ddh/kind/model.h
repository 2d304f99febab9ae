/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/model.h: "ddh.model/1", a computation cut into units, with its data and its metrics.
 *
 * The host drives a model unit by unit. A UNIT is what is gathered and freed together (a transformer block, an
 * embedding); its parameters live in memory that the strategy owns and that a view shows for the time of one call.
 * A PROGRAM is a list of units in the order of the forward; backward runs it in reverse.
 *
 *   created --describe--> described --prepare--> ready --(batch_create, forward, backward, metrics)*--> destroyed
 *
 * A parameter belongs to one owner unit, the first of every program that uses it; further units may use it (tied
 * weights). Its gradient is final after the backward of its owner. Parameters that a program doesn't train have no
 * gradient there. A unit writes a gradient for every trained parameter of its view, zero where nothing arrived. */
#ifndef DDH_KIND_MODEL_H
#define DDH_KIND_MODEL_H

#include "ddh/abi.h"
#include "ddh/host/stream.h"

#define DDH_MODEL_IFACE "ddh.model/1"
#define DDH_SAMPLER_IFACE "ddh.sampler/1"

/* ddh_desc.caps of models: the compute dtypes, besides fp32, that its units take (ddh_param_view.dtype). */
#define DDH_CAP_COMPUTE_BF16 (UINT64_C(1) << 16)
#define DDH_CAP_COMPUTE_F16 (UINT64_C(1) << 17)
/* Its forward may run a second time before backward (DDH_CALL_RECOMPUTED, DDH_PHASE_RECOMPUTE). */
#define DDH_CAP_RECOMPUTE (UINT64_C(1) << 18)
/* Takes batches without samples: its units run on them, and write gradients that are zero. */
#define DDH_CAP_EMPTY_BATCH (UINT64_C(1) << 19)

/* ---- What a model says of itself, before any tensor exists. Owned by the model until destroy ----------- */

#define DDH_PARAM_NO_DECAY 1u    /* no weight decay: biases, norms */
#define DDH_PARAM_FROZEN 2u      /* no program trains it */
#define DDH_PARAM_SPARSE_GRAD 4u /* few rows get a gradient; dense in memory all the same */

#define DDH_INIT_ZERO 1
#define DDH_INIT_CONSTANT 2 /* a */
#define DDH_INIT_NORMAL 3   /* mean a, standard deviation b */
#define DDH_INIT_UNIFORM 4  /* in [a, b) */

typedef struct ddh_param_desc {
  uint32_t struct_size;
  int32_t dtype;        /* as stored in a checkpoint */
  const char* name;     /* stable: "transformer.h.0.ln_1.weight" */
  const int64_t* shape; /* n_dims of them */
  uint64_t numel;
  uint32_t n_dims;
  int32_t owner_unit;
  uint32_t attributes; /* DDH_PARAM_* */
  int32_t init_kind;   /* DDH_INIT_* */
  double init_a, init_b;
  const char* const* tied_names; /* further names of the same parameter, NULL-terminated; NULL = none */
} ddh_param_desc;
#define DDH_PARAM_DESC_MIN_SIZE 72u

/* State without gradient (batch-norm statistics). */
#define DDH_SYNC_STEP 1      /* rank 0's values go to all at each step's begin (by option) */
#define DDH_SYNC_ON_CHANGE 2 /* after the model says so; no host offers it yet */
#define DDH_SYNC_NEVER 3
typedef struct ddh_buffer_desc {
  uint32_t struct_size;
  int32_t dtype;
  const char* name;
  const int64_t* shape;
  uint64_t numel;
  uint32_t n_dims;
  int32_t sync; /* DDH_SYNC_* */
  void* data;   /* the model's memory, stable */
} ddh_buffer_desc;
#define DDH_BUFFER_DESC_MIN_SIZE 48u

typedef struct ddh_unit_desc {
  uint32_t struct_size;
  uint32_t n_params;
  const char* name;      /* "h.3" */
  const int32_t* params; /* all that the unit reads, its own first, in the order of the view */
} ddh_unit_desc;
#define DDH_UNIT_DESC_MIN_SIZE 24u

#define DDH_PROGRAM_TRAIN 1  /* forward, backward, a counted step */
#define DDH_PROGRAM_EVAL 2   /* forward alone */
#define DDH_PROGRAM_UPDATE 3 /* forward and backward or not, not a counted step */

/* A metric is a sum and a count over a batch; the host adds both over micro-batches and ranks, then divides.
 * Metric 0 of a program with a loss is "loss". */
typedef struct ddh_program_desc {
  uint32_t struct_size;
  int32_t kind;         /* DDH_PROGRAM_* */
  const char* name;     /* "train", "eval" */
  const int32_t* units; /* n_units, in the order of the forward; a unit may occur twice */
  const uint8_t*
      trainable; /* one per parameter of the model, 1 = trained here: its owner is among units; NULL = all that
                               are not frozen */
  const char* const* metrics;
  uint32_t n_units;
  uint32_t n_metrics;
  uint64_t n_samples;      /* size of its sample space: indices 0 .. n_samples-1 */
  const char* sample_unit; /* what metrics.jsonl counts per second: "tokens", "images" */
  int32_t optimizer;       /* which of the run's optimizer instances: 0 */
  uint32_t reserved0;
} ddh_program_desc;
#define DDH_PROGRAM_DESC_MIN_SIZE 72u

typedef struct ddh_model_desc {
  uint32_t struct_size;
  uint32_t n_params;
  const ddh_param_desc* const* params;
  const ddh_unit_desc* const* units;
  const ddh_buffer_desc* const* buffers;
  const ddh_program_desc* const* programs;
  uint32_t n_units, n_buffers, n_programs;
  uint32_t reserved0;
  const char* name; /* "gpt 0.8M": for people */
} ddh_model_desc;
#define DDH_MODEL_DESC_MIN_SIZE 64u

/* ---- What a strategy shows a unit ---------------------------------------------------------------------- */

#define DDH_GRAD_WRITE 1 /* the buffer's content is undefined: store */
#define DDH_GRAD_ADD 2   /* add the complete gradient of this use in one fp32 addition per element */

typedef struct ddh_param_view {
  int32_t param;
  int32_t dtype; /* of data: the compute dtype */
  void* data;    /* numel elements, row-major */
  void* grad;    /* where this use's gradient goes; NULL: not trained, or not in backward */
  int32_t grad_dtype;
  int32_t grad_mode; /* DDH_GRAD_* */
  uint64_t numel;
  const int64_t* local_shape;  /* NULL: the whole parameter */
  const int64_t* local_offset; /* NULL: zeros */
} ddh_param_view;

/* Valid on the call's stream until the release of the unit. */
typedef struct ddh_unit_view {
  uint32_t struct_size;
  uint32_t n_params; /* as in ddh_unit_desc, same order */
  const ddh_param_view* params;
  uint64_t param_stride; /* bytes between two views */
  uint64_t version;      /* changes when values may have changed: caches of packed weights go by it */
} ddh_unit_view;
#define DDH_UNIT_VIEW_MIN_SIZE 32u

/* The i-th parameter view. */
static inline const ddh_param_view* ddh_view_param(const ddh_unit_view* view, uint32_t i) {
  return (const ddh_param_view*)(const void*)((const char*)(const void*)view->params + view->param_stride * i);
}

/* ---- Calls ----------------------------------------------------------------------------------------------- */

typedef struct ddh_batch ddh_batch;

typedef struct ddh_batch_args {
  uint32_t struct_size;
  int32_t program;
  int64_t step;           /* counts from 1 */
  int32_t micro_batch;    /* counts from 0 */
  uint32_t n_samples;     /* 0 only with DDH_CAP_EMPTY_BATCH */
  const int64_t* samples; /* global sample indices, chosen by the host */
} ddh_batch_args;
#define DDH_BATCH_ARGS_MIN_SIZE 32u

typedef struct ddh_batch_info {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t items;    /* in the program's sample_unit: tokens of this batch */
  double loss_count; /* what the loss's sum is divided by: targets that count; equals the count of metric 0 */
} ddh_batch_info;
#define DDH_BATCH_INFO_MIN_SIZE 24u

#define DDH_PHASE_FORWARD 1
#define DDH_PHASE_BACKWARD 2
#define DDH_PHASE_EVAL 3      /* a forward that no backward follows: keep nothing */
#define DDH_PHASE_RECOMPUTE 4 /* a second forward before backward: same values, buffers and metrics don't change */

/* This forward runs again before its backward: keep the unit's input alone. */
#define DDH_CALL_RECOMPUTED 1u

/* One unit, one micro-batch. Activations between units stay inside the model, keyed by (micro_batch, position). */
typedef struct ddh_unit_call {
  uint32_t struct_size;
  int32_t program;
  int32_t unit;
  int32_t position; /* in the program's unit list */
  int32_t micro_batch;
  int32_t phase; /* DDH_PHASE_* */
  int64_t step;
  ddh_batch* batch;
  const ddh_unit_view* view;
  double seed_scale; /* backward differentiates seed_scale times the SUM of the losses */
  ddh_stream_t* stream;
  uint32_t flags; /* DDH_CALL_* */
  uint32_t reserved0;
} ddh_unit_call;
#define DDH_UNIT_CALL_MIN_SIZE 72u

typedef struct ddh_model {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Reads the data's size where needed and gives the description, the same at every call and on every rank. [main] */
  ddh_rc (*describe)(ddh_inst* self, const ddh_model_desc** out, ddh_err* err) DDH_NX;
  /* Last chance to choose by measuring (ddh.config agree). May be NULL. [main] [collective] */
  ddh_rc (*prepare)(ddh_inst* self, ddh_err* err) DDH_NX;
  /* Fetches the named samples. The host calls ahead of time; the caller owns *out. [worker] */
  ddh_rc (*batch_create)(ddh_inst* self, const ddh_batch_args* args, ddh_batch** out, ddh_batch_info* info,
                         ddh_err* err) DDH_NX;
  void (*batch_destroy)(ddh_inst* self, ddh_batch* batch) DDH_NX; /* [any] */
  /* Runs one unit on the outputs of the one before. Work that it leaves on call->stream has its own copy of what it
   * needs of `call` and of the view's entries, and holds the batch's data: batch_destroy may come before it has run.
   * [step] [stream-ordered] */
  ddh_rc (*forward)(ddh_inst* self, const ddh_unit_call* call, ddh_err* err) DDH_NX;
  /* Gradients into the view, and the gradient of the unit's input for the unit before. [step] [stream-ordered] */
  ddh_rc (*backward)(ddh_inst* self, const ddh_unit_call* call, ddh_err* err) DDH_NX;
  /* Sums and counts of a micro-batch whose forward is done; n_metrics each. [step] [may-block] */
  ddh_rc (*metrics)(ddh_inst* self, int32_t program, int32_t micro_batch, double* sums, double* counts,
                    ddh_err* err) DDH_NX;
  /* Drops what is kept for a micro-batch: after its backward, after an eval forward, after an error. [main] */
  void (*discard)(ddh_inst* self, int32_t micro_batch) DDH_NX;
} ddh_model;
#define DDH_MODEL_MIN_SIZE 72u

/* Optional, "ddh.sampler/1": text (or what the model makes) from the trained model. The host runs the eval program
 * on each batch, on every rank alike, until `next` says there is no more. */
typedef struct ddh_sampler {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Starts a sample of `length` items after `prompt` (may be ""). [main] */
  ddh_rc (*begin)(ddh_inst* self, const char* prompt, uint32_t length, uint64_t seed, ddh_err* err) DDH_NX;
  /* The next batch for the eval program, owned by the caller; *out = NULL at the end. Before it draws the next item,
   * it reads the outputs of the batch before. [main] */
  ddh_rc (*next)(ddh_inst* self, ddh_batch** out, ddh_err* err) DDH_NX;
  /* The whole text so far, prompt included; owned by the model until the next call. [main] */
  const char* (*text)(ddh_inst* self)DDH_NX;
} ddh_sampler;
#define DDH_SAMPLER_MIN_SIZE 32u

#endif
