/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/model.h: "ddh.model/1", a computation cut into units, with its data and its metrics.
 *
 * The host drives a model unit by unit. A UNIT is what is gathered and freed together (a transformer block, an
 * embedding); its parameters live in memory that the strategy owns and that a view shows for the time of one call.
 * A PROGRAM is a list of units in the order of the forward; backward runs it in reverse. A place in the list is a
 * POSITION; a unit may have several.
 *
 *   created --describe--> described --prepare--> ready --(batch_create, forward, backward, metrics)*--> destroyed
 *
 * A parameter belongs to one owner unit, the first of every program that uses it; further units may use it (tied
 * weights). Its gradient is final after the backward of its owner. Parameters that a program doesn't train have no
 * gradient there. A unit writes a gradient for every trained parameter of its view, zero where nothing arrived.
 * To be frozen at 1.0. */
#ifndef DDH_KIND_MODEL_H
#define DDH_KIND_MODEL_H

#include "ddh/abi.h"
#include "ddh/service/stream.h"

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
#define DDH_INIT_CONSTANT 2     /* a */
#define DDH_INIT_NORMAL 3       /* mean a, standard deviation b */
#define DDH_INIT_UNIFORM 4      /* in [a, b) */
#define DDH_INIT_TRUNC_NORMAL 5 /* mean a, standard deviation b, redrawn outside [init_low, init_high] */

typedef struct ddh_param_desc {
  uint32_t struct_size;
  int32_t dtype;        /* as stored in a file of weights: DDH_F32, DDH_BF16 or DDH_F16 */
  const char* name;     /* stable: "transformer.h.0.ln_1.weight" */
  const int64_t* shape; /* n_dims of them */
  uint64_t numel;
  uint32_t n_dims;
  int32_t owner_unit;
  uint32_t attributes; /* DDH_PARAM_* */
  int32_t init_kind;   /* DDH_INIT_* */
  double init_a, init_b;
  const char* const* tied_names; /* further names of the same parameter, NULL-terminated; NULL = none */
  double init_low, init_high;    /* bounds of DDH_INIT_TRUNC_NORMAL, low < high; else 0 */
  double lr_scale;               /* factor on the learning rate; 0 = 1 */
  /* What views show: 0 = the run's compute dtype; DDH_F32 keeps it in fp32 (norms inside a bf16 model), which takes
   * DDH_FEATURE_PARAM_DTYPES. */
  int32_t compute_dtype;
  uint32_t reserved0;
} ddh_param_desc;
#define DDH_PARAM_DESC_MIN_SIZE 104u

/* State without gradient, in memory of the model's own, and how ranks agree on it. */
#define DDH_SYNC_STEP 1  /* rank 0's values go to all when a step begins (train.sync_buffers) */
#define DDH_SYNC_NEVER 2 /* equal on all ranks without help: constants, results of update programs */
/* Running statistics: after a step the host sets, for each micro-batch of all ranks in global order,
 * buffer = fold_decay * buffer + contribution, element by element, so that the values do not depend on the number of
 * ranks. The model never writes the buffer; it hands over contributions (ddh_model_api.contribution). F32, or I64 with
 * fold_decay 1 (counts). Batch norm with momentum m: fold_decay = 1 - m, contribution = m * statistic of the micro-batch. */
#define DDH_SYNC_FOLD 3
typedef struct ddh_buffer_desc {
  uint32_t struct_size;
  int32_t dtype;
  const char* name;
  const int64_t* shape;
  uint64_t numel;
  uint32_t n_dims;
  int32_t sync;      /* DDH_SYNC_* */
  void* data;        /* the model's memory, stable */
  double fold_decay; /* of DDH_SYNC_FOLD; else 0 */
} ddh_buffer_desc;
#define DDH_BUFFER_DESC_MIN_SIZE 56u

typedef struct ddh_unit_desc {
  uint32_t struct_size;
  uint32_t n_params;
  const char* name;      /* "h.3" */
  const int32_t* params; /* all that the unit reads, its own first, in the order of the view */
} ddh_unit_desc;
#define DDH_UNIT_DESC_MIN_SIZE 24u

#define DDH_PROGRAM_TRAIN 1 /* forward, backward, a counted step */
#define DDH_PROGRAM_EVAL 2  /* forward alone, with metrics */
/* Forward alone (DDH_PHASE_EVAL), to renew state of the model's own, such as KGAT's attention. No mask, no metrics, no
 * counted step. Every rank runs it over all samples in ascending order, so that the state is equal everywhere, when the
 * host says: after every train.update_every steps. */
#define DDH_PROGRAM_UPDATE 3

/* ddh_program_desc.position_flags; they take DDH_FEATURE_POSITIONS. */
#define DDH_POSITION_FORWARD_ONLY 1u /* no backward: the unit and what lies before it on its path get no gradient */
/* The backward gives the gradient of the unit's input alone: a frozen unit between trained ones. The unit's own
 * parameters are not trained by this program, or through other positions only. */
#define DDH_POSITION_INPUT_GRAD_ONLY 2u

/* A metric is a sum and a count over a batch. The host folds both over the micro-batches of all ranks in global order and
 * reports sum / count, or what `derive` makes of all sums and counts. Metric 0 of a program with a loss is "loss". */
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
  /* Size of its sample space: indices 0 .. n_samples-1. The model splits its data into training and evaluation programs
   * (data.val_path, data.val_fraction); the host chooses indices and cuts them among ranks and micro-batches. */
  uint64_t n_samples;
  const char* sample_unit; /* what metrics.jsonl counts per second: "tokens", "images" */
  int32_t optimizer;       /* which of the run's optimizer instances (train.optimizers) updates what it trains */
  uint32_t n_reported;     /* names in `reported`; 0 = each metric is reported as sum / count under its own name */
  const uint32_t* position_flags; /* DDH_POSITION_* of each place in `units`; NULL = all 0 */
  const char* eval_program;       /* of a training program: the program that evaluates it; NULL = none */
  const char* const* reported;    /* names of what `derive` gives: "loss", "f1", "auc" */
} ddh_program_desc;
#define DDH_PROGRAM_DESC_MIN_SIZE 96u

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
} ddh_param_view;
#define DDH_PARAM_VIEW_MIN_SIZE 40u

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
  int32_t micro_batch;    /* of this rank, counts from 0 */
  uint32_t n_samples;     /* 0 only with DDH_CAP_EMPTY_BATCH */
  const int64_t* samples; /* global sample indices, chosen by the host */
  /* Place of the micro-batch among those of all ranks in this step: micro_batch * world_size + rank. Random numbers of a
   * batch (dropout, augmentation) go by run.seed, step and this, so that they do not depend on the number of ranks. In an
   * evaluation and in an update program the micro-batches are counted through, and `micro_batch` is 0. */
  int64_t global_micro_batch;
} ddh_batch_args;
#define DDH_BATCH_ARGS_MIN_SIZE 40u

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

#define DDH_CALL_RECOMPUTED 1u      /* this forward runs again before its backward: keep the unit's input alone */
#define DDH_CALL_FORWARD_ONLY 2u    /* no backward of this position follows: keep nothing */
#define DDH_CALL_INPUT_GRAD_ONLY 4u /* forward: keep what the input's gradient needs; backward: give that alone */

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
  ddh_stream* stream;
  uint32_t flags; /* DDH_CALL_* */
  uint32_t reserved0;
  int64_t global_micro_batch; /* as in ddh_batch_args */
} ddh_unit_call;
#define DDH_UNIT_CALL_MIN_SIZE 80u

/* What a position of a program costs for a batch of n_samples. */
typedef struct ddh_estimate_args {
  uint32_t struct_size;
  int32_t program;
  int32_t position;
  uint32_t n_samples;
} ddh_estimate_args;
#define DDH_ESTIMATE_ARGS_MIN_SIZE 16u

typedef struct ddh_estimate {
  uint32_t struct_size;
  uint32_t reserved0;
  double forward_flops; /* a multiplication and an addition are two */
  double backward_flops;
  uint64_t activation_bytes; /* kept from forward to backward, without recomputation */
} ddh_estimate;
#define DDH_ESTIMATE_MIN_SIZE 32u

typedef struct ddh_model_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Reads the data's size where needed and gives the description, the same at every call and on every rank. [main] */
  ddh_rc (*describe)(ddh_inst* self, const ddh_model_desc** out, ddh_err* err) DDH_NX;
  /* After the layout is made, before the first batch: allocate scratch, say choices in the log. Nothing that bits depend
   * on is chosen by measuring time. May be NULL. [main] [collective] */
  ddh_rc (*prepare)(ddh_inst* self, ddh_err* err) DDH_NX;
  /* Fetches the named samples. The host calls it ahead of time from threads of its own, and from the main thread for
   * evaluations, several at once and beside every other call. The caller owns *out. [any] */
  ddh_rc (*batch_create)(ddh_inst* self, const ddh_batch_args* args, ddh_batch** out, ddh_batch_info* info,
                         ddh_err* err) DDH_NX;
  void (*batch_destroy)(ddh_inst* self, ddh_batch* batch) DDH_NX; /* [any] */
  /* Runs one unit on the outputs of the one before. Work that it leaves on call->stream has its own copy of what it
   * needs of `call` and of the view's entries, and holds the batch's data: batch_destroy may come before it has run.
   * [step] [stream-ordered] */
  ddh_rc (*forward)(ddh_inst* self, const ddh_unit_call* call, ddh_err* err) DDH_NX;
  /* Gradients into the view, and the gradient of the unit's input for the unit before. [step] [stream-ordered] */
  ddh_rc (*backward)(ddh_inst* self, const ddh_unit_call* call, ddh_err* err) DDH_NX;
  /* Sums and counts of a micro-batch whose forward is done; n_metrics each. Called once for each micro-batch: after its
   * backward where it has one, before discard. [step] [may-block] */
  ddh_rc (*metrics)(ddh_inst* self, int32_t program, int32_t micro_batch, double* sums, double* counts,
                    ddh_err* err) DDH_NX;
  /* Drops what is kept for a micro-batch: after its metrics, after an error. [main] */
  void (*discard)(ddh_inst* self, int32_t micro_batch) DDH_NX;
  /* Turns the folded sums and counts of a program (n_metrics each) into its n_reported values. NULL where no program has
   * `reported`. [main] */
  ddh_rc (*derive)(ddh_inst* self, int32_t program, const double* sums, const double* counts, double* values,
                   ddh_err* err) DDH_NX;
  /* What a micro-batch whose forward is done contributes to a buffer of DDH_SYNC_FOLD: as many elements as the buffer, of
   * its dtype, into `out`. *given = 0: nothing, the buffer stays as it is. Called with metrics. NULL where no buffer is
   * folded. [step] [may-block] */
  ddh_rc (*contribution)(ddh_inst* self, uint32_t buffer, int32_t program, int32_t micro_batch, void* out,
                         int32_t* given, ddh_err* err) DDH_NX;
  /* Estimates; the host makes FLOP/s of them and shows activations beside what was measured. DDH_NOT_FOUND: the model
   * makes none. May be NULL. [main] */
  ddh_rc (*estimate)(ddh_inst* self, const ddh_estimate_args* args, ddh_estimate* out, ddh_err* err) DDH_NX;
} ddh_model_api;
#define DDH_MODEL_API_MIN_SIZE 96u

typedef struct ddh_sample_args {
  uint32_t struct_size;
  uint32_t length;    /* items to make after the prompt; 0: only check the prompt */
  const char* prompt; /* may be "" */
  uint64_t seed;
  double temperature; /* 0: always the most likely item */
  int32_t top_k;      /* draw from the k most likely items; 0: from all */
  int32_t program;    /* the eval program that the host runs on the batches */
  int64_t condition;  /* index of a sample of that program to go by (an image, points); -1: none */
} ddh_sample_args;
#define DDH_SAMPLE_ARGS_MIN_SIZE 48u

/* Optional, "ddh.sampler/1": text (or what the model makes) from the trained model. The host runs an eval program
 * on each batch, on every rank alike, until `next` says there is no more. */
typedef struct ddh_sampler_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Starts a sample. DDH_INVALID_ARGUMENT: a prompt, or a condition, that the model can't read. [main] */
  ddh_rc (*begin)(ddh_inst* self, const ddh_sample_args* args, ddh_err* err) DDH_NX;
  /* The next batch for the eval program, owned by the caller; *out = NULL at the end. Before it draws the next item,
   * it reads the outputs of the batch before. [main] */
  ddh_rc (*next)(ddh_inst* self, ddh_batch** out, ddh_err* err) DDH_NX;
  /* The whole text so far, prompt included; owned by the model until the next call. [main] */
  const char* (*text)(ddh_inst* self)DDH_NX;
} ddh_sampler_api;
#define DDH_SAMPLER_API_MIN_SIZE 32u

#endif
