/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/model.h: "ddh.model/1", a computation as a list of units, with its data and its metrics.
 *
 * The host runs a model unit by unit. The parameters of a UNIT (a transformer block, an embedding) are gathered and
 * freed together. The strategy owns their memory, and a view gives access to it for one call. A PROGRAM is a list of
 * units in the order of the forward; backward runs it in reverse. An index in the list is a POSITION; a unit may have
 * several.
 *
 *   created --describe--> described --prepare--> ready --(batch_create, forward, backward, metrics)*--> destroyed
 *
 * A parameter belongs to one owner unit. In each program that uses the parameter, the owner is the first unit that does.
 * Further units may use it (tied weights). Its gradient is complete after the backward of the owner. Parameters that a
 * program doesn't train have no gradient in it. A unit writes a gradient for every trained parameter of its view, zero if
 * nothing contributed.
 * To be frozen at 1.0. */
#ifndef DDH_KIND_MODEL_H
#define DDH_KIND_MODEL_H

#include "ddh/abi.h"
#include "ddh/service/stream.h"

#define DDH_MODEL_IFACE "ddh.model/1"
#define DDH_SAMPLER_IFACE "ddh.sampler/1"

/* ddh_desc.caps of models: the compute dtypes, besides fp32, that the units support (ddh_param_view.dtype). */
#define DDH_CAP_COMPUTE_BF16 (UINT64_C(1) << 16)
#define DDH_CAP_COMPUTE_F16 (UINT64_C(1) << 17)
/* Supports activation checkpointing: the forward may run a second time (DDH_CALL_RECOMPUTED, DDH_PHASE_RECOMPUTE). */
#define DDH_CAP_RECOMPUTE (UINT64_C(1) << 18)
/* Supports batches without samples: the units run on them and write zero gradients. */
#define DDH_CAP_EMPTY_BATCH (UINT64_C(1) << 19)

/* ---- The description of a model, before any tensor exists. The model owns it until destroy ------------- */

#define DDH_PARAM_NO_DECAY 1u    /* no weight decay: biases, norms */
#define DDH_PARAM_FROZEN 2u      /* no program trains it */
#define DDH_PARAM_SPARSE_GRAD 4u /* few rows get a gradient; it is stored dense */

#define DDH_INIT_ZERO 1
#define DDH_INIT_CONSTANT 2     /* a */
#define DDH_INIT_NORMAL 3       /* mean a, standard deviation b */
#define DDH_INIT_UNIFORM 4      /* in [a, b) */
#define DDH_INIT_TRUNC_NORMAL 5 /* mean a, standard deviation b, redrawn outside [init_low, init_high] */

typedef struct ddh_param_desc {
  uint32_t struct_size;
  int32_t dtype;        /* as stored in a file of weights: DDH_F32, DDH_BF16 or DDH_F16 */
  const char* name;     /* stable: "transformer.h.0.ln_1.weight" */
  const int64_t* shape; /* n_dims sizes */
  uint64_t numel;
  uint32_t n_dims;
  int32_t owner_unit;
  uint32_t attributes; /* DDH_PARAM_* */
  int32_t init_kind;   /* DDH_INIT_* */
  double init_a, init_b;
  const char* const* tied_names; /* further names of the same parameter, NULL-terminated; NULL = none */
  double init_low, init_high;    /* bounds of DDH_INIT_TRUNC_NORMAL, low < high; else 0 */
  double lr_scale;               /* factor on the learning rate; 0 = 1 */
  /* The dtype of views: 0 = the run's compute dtype. DDH_F32 keeps the parameter in fp32 (a norm in a bf16 model) and
   * requires DDH_FEATURE_PARAM_DTYPES. */
  int32_t compute_dtype;
  uint32_t reserved0;
  /* Elements of a block of its gradient (ddh_model_api.gradient_block): whole rows, and a multiple of DDH_GRID. The model
   * chooses it from the shape alone, so that bits depend on nothing else. 0: the gradient exists only whole. A parameter
   * that several units use, or one unit at several positions, has 0. */
  uint64_t grad_block;
} ddh_param_desc;
#define DDH_PARAM_DESC_MIN_SIZE 112u

/* State without a gradient, in the model's own memory, and how its copies stay equal on all ranks. */
#define DDH_SYNC_STEP 1  /* rank 0's values are sent to all ranks when a step begins (train.sync_buffers) */
#define DDH_SYNC_NEVER 2 /* equal on all ranks without synchronization: constants, results of update programs */
/* Running statistics: after a step the host sets, for each micro-batch of all ranks in global order,
 * buffer = fold_decay * buffer + contribution, element by element, so that the values do not depend on the number of
 * ranks. The model never writes the buffer; it reports contributions (ddh_model_api.contribution). The dtype is F32, or
 * I64 with fold_decay 1 (counts). Batch norm with momentum m: fold_decay = 1 - m, contribution = m * statistic of the
 * micro-batch. */
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
  double fold_decay; /* with DDH_SYNC_FOLD; else 0 */
} ddh_buffer_desc;
#define DDH_BUFFER_DESC_MIN_SIZE 56u

typedef struct ddh_unit_desc {
  uint32_t struct_size;
  uint32_t n_params;
  const char* name;      /* "h.3" */
  const int32_t* params; /* all that the unit reads, in the order of the view; those it owns come first */
} ddh_unit_desc;
#define DDH_UNIT_DESC_MIN_SIZE 24u

#define DDH_PROGRAM_TRAIN 1 /* forward, backward, a counted step */
#define DDH_PROGRAM_EVAL 2  /* forward only, with metrics */
/* Forward only (DDH_PHASE_EVAL), to recompute state of the model, such as KGAT's attention. It has no mask and no
 * metrics, and does not count as a step. The host runs it after every train.update_every steps. Every rank runs it over
 * all samples in ascending order, so the state is equal on all ranks. */
#define DDH_PROGRAM_UPDATE 3

/* ddh_program_desc.position_flags; they require DDH_FEATURE_POSITIONS. */
/* No backward at this position. Units whose output reaches the loss only through it get no gradient. */
#define DDH_POSITION_FORWARD_ONLY 1u
/* The backward computes only the gradient of the unit's input, for a frozen unit between trained ones. This program
 * does not train the unit's own parameters, or trains them only through other positions. */
#define DDH_POSITION_INPUT_GRAD_ONLY 2u

/* A metric is a sum and a count over a batch. The host folds both over the micro-batches of all ranks in global order.
 * It reports sum / count, or the values that `derive` computes from all sums and counts. Metric 0 of a program with a
 * loss is "loss". */
typedef struct ddh_program_desc {
  uint32_t struct_size;
  int32_t kind;         /* DDH_PROGRAM_* */
  const char* name;     /* "train", "eval" */
  const int32_t* units; /* n_units, in the order of the forward; a unit may occur twice */
  /* One per parameter, 1 = trained here (its owner must be in units). NULL = all that are not frozen. */
  const uint8_t* trainable;
  const char* const* metrics;
  uint32_t n_units;
  uint32_t n_metrics;
  /* Number of samples: indices are 0 .. n_samples-1. The model splits its data into training and evaluation programs
   * (data.val_path, data.val_fraction). The host chooses indices and distributes them over ranks and micro-batches. */
  uint64_t n_samples;
  const char* sample_unit; /* unit of throughput in metrics.jsonl: "tokens", "images" */
  int32_t optimizer;       /* index in train.optimizers of the optimizer that updates the trained parameters */
  uint32_t n_reported;     /* names in `reported`; 0 = each metric is reported as sum / count under its own name */
  const uint32_t* position_flags; /* DDH_POSITION_* of each position; NULL = all 0 */
  const char* eval_program;       /* of a training program: the program that evaluates it; NULL = none */
  const char* const* reported;    /* names of the values of `derive`: "loss", "f1", "auc" */
} ddh_program_desc;
#define DDH_PROGRAM_DESC_MIN_SIZE 96u

/* How another program stores this model's parameters, where that differs: some are stored transposed, [in, out]. When the
 * host reads a file, it recognizes the layout by the shapes of those that are not square; of square ones the shape does
 * not tell. `ddhost export --layout NAME` writes it. */
typedef struct ddh_layout_desc {
  uint32_t struct_size;
  uint32_t n_transposed;
  const char* name;          /* of the program: "transformers" */
  const int32_t* transposed; /* the parameters, which have two dimensions; one at least is not square */
  const char* refused;       /* why this model has no export in the layout, for a sentence; NULL: it has */
} ddh_layout_desc;
#define DDH_LAYOUT_DESC_MIN_SIZE 32u

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
  /* What the ids of the model's inputs and outputs stand for, as a short text or a hash: the characters, the names of
   * classes. The host stores it with weights and checkpoints, and warns when they are loaded into a model with another
   * text. It is the same on every rank. NULL: not known. */
  const char* meaning_of_ids;
  const ddh_layout_desc* const* layouts; /* n_layouts; their names differ */
  uint32_t n_layouts, reserved1;
} ddh_model_desc;
#define DDH_MODEL_DESC_MIN_SIZE 88u

/* ---- Views of parameters and gradients ----------------------------------------------------------------- */

/* What a backward gives is the gradient of seed_scale (ddh_unit_call) times the SUM of the losses of its micro-batch: divided
 * neither by targets nor by ranks. Strategies sum these and do not scale them; the update divides. */
#define DDH_GRAD_WRITE 1 /* the buffer's content is undefined: store */
#define DDH_GRAD_ADD 2   /* add the complete gradient of this use in one fp32 addition per element */
/* `grad` is NULL: the gradient is asked for in blocks after the backward, which keeps what it needs for them. Only for
 * parameters with a grad_block. */
#define DDH_GRAD_LATER 3

typedef struct ddh_param_view {
  int32_t param;
  int32_t dtype; /* dtype of `data`: the parameter's compute_dtype, else the run's */
  void* data;    /* numel elements, row-major */
  void* grad;    /* destination of this use's gradient; NULL: not trained, or not in backward */
  int32_t grad_dtype;
  int32_t grad_mode; /* DDH_GRAD_* */
  uint64_t numel;
} ddh_param_view;
#define DDH_PARAM_VIEW_MIN_SIZE 40u

/* Valid on the call's stream until the release of the unit. */
typedef struct ddh_unit_view {
  uint32_t struct_size;
  uint32_t n_params; /* as in ddh_unit_desc, in the same order */
  const ddh_param_view* params;
  uint64_t param_stride; /* bytes between two views */
  uint64_t version;      /* changes when values may have changed; a key for caches of packed weights */
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
  /* Index of the micro-batch among those of all ranks in this step: micro_batch * world_size + rank. Random numbers of
   * layers (dropout) depend on run.seed, step and this index, so they do not depend on the number of ranks. In an
   * evaluation and in an update program the index counts all micro-batches, and `micro_batch` is 0. */
  int64_t global_micro_batch;
  /* The epoch of its program in which each sample is used, from 0; NULL in evaluations and update programs: 0. Random
   * numbers of data (augmentation, negative samples) depend only on run.seed, the epoch and the sample's index. So a
   * sample is the same for every size and number of micro-batches, and after a resume with others. */
  const int64_t* epochs;
} ddh_batch_args;
#define DDH_BATCH_ARGS_MIN_SIZE 48u

typedef struct ddh_batch_info {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t items;    /* in the program's sample_unit: tokens of this batch */
  double loss_count; /* number of targets that count: divisor of the summed loss; equals the count of metric 0 */
} ddh_batch_info;
#define DDH_BATCH_INFO_MIN_SIZE 24u

#define DDH_PHASE_FORWARD 1
#define DDH_PHASE_BACKWARD 2
#define DDH_PHASE_EVAL 3      /* a forward without a backward: keep nothing */
#define DDH_PHASE_RECOMPUTE 4 /* a second forward before backward: same values; buffers and metrics don't change */

#define DDH_CALL_RECOMPUTED 1u      /* this forward runs again before its backward: keep only the unit's input */
#define DDH_CALL_FORWARD_ONLY 2u    /* this position has no backward: keep nothing */
#define DDH_CALL_INPUT_GRAD_ONLY 4u /* keep (forward) and compute (backward) only what the input's gradient needs */

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

/* A block of a parameter's gradient: elements [offset, offset + numel) in row-major order. `offset` is a multiple of
 * grad_block, and `numel` is grad_block but for the end of the parameter. */
typedef struct ddh_grad_block {
  uint32_t struct_size;
  int32_t param; /* -1: there are no more */
  uint64_t offset, numel;
  float* grad;       /* numel elements */
  int32_t grad_mode; /* DDH_GRAD_WRITE, DDH_GRAD_ADD */
  uint32_t reserved0;
} ddh_grad_block;
#define DDH_GRAD_BLOCK_MIN_SIZE 40u

/* The estimated cost of a position of a program for a batch of n_samples. */
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
  double forward_flops; /* a multiply-add counts as two */
  double backward_flops;
  uint64_t activation_bytes; /* kept from forward to backward, without recomputation */
  /* Of activation_bytes: what is kept if the forward runs again (the unit's input, or the result that the next unit takes). */
  uint64_t lasting_bytes;
  /* Beside activation_bytes, at the peak of the forward, and of the backward with the gradient of the result. All three 0:
   * the model does not know them, and the host plans by activation_bytes alone. */
  uint64_t forward_peak_bytes;
  uint64_t backward_peak_bytes;
} ddh_estimate;
#define DDH_ESTIMATE_MIN_SIZE 56u

typedef struct ddh_model_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Gives the description, which is the same at every call and on every rank. May read the size of the data. [main] */
  ddh_rc (*describe)(ddh_inst* self, const ddh_model_desc** out, ddh_err* err) DDH_NX;
  /* Called after the layout is made, before the first batch: allocates scratch memory and logs choices. A choice that
   * affects results must not depend on measured time. May be NULL. [main] [collective] */
  ddh_rc (*prepare)(ddh_inst* self, ddh_err* err) DDH_NX;
  /* Fetches the given samples. The host calls it ahead of time from its own threads, and from the main thread for
   * evaluations. Several calls may run at once, beside every other call. The caller owns *out. [any] */
  ddh_rc (*batch_create)(ddh_inst* self, const ddh_batch_args* args, ddh_batch** out, ddh_batch_info* info,
                         ddh_err* err) DDH_NX;
  void (*batch_destroy)(ddh_inst* self, ddh_batch* batch) DDH_NX; /* [any] */
  /* Runs one unit on the outputs of the previous one. Work that it queues on call->stream must copy what it needs of
   * `call` and of the view's entries, and must keep the batch's data alive: batch_destroy may be called before the work
   * has run. [step] [stream-ordered] [may-block] */
  ddh_rc (*forward)(ddh_inst* self, const ddh_unit_call* call, ddh_err* err) DDH_NX;
  /* Writes gradients into the view, and computes the gradient of the unit's input for the previous unit. [step]
   * [stream-ordered] */
  ddh_rc (*backward)(ddh_inst* self, const ddh_unit_call* call, ddh_err* err) DDH_NX;
  /* Gives sums and counts of a micro-batch whose forward is done, n_metrics each. Called once for each micro-batch,
   * after its backward if it has one, and before discard. On a device whose memory is not the host's, the host calls it
   * for all micro-batches of a training step in decide. There and in evaluations it has waited for the stream of their
   * calls, so copies that were queued on it have arrived, and the model does not wait. [step] [may-block] */
  ddh_rc (*metrics)(ddh_inst* self, int32_t program, int32_t micro_batch, double* sums, double* counts,
                    ddh_err* err) DDH_NX;
  /* Frees everything that is kept for a micro-batch. Called after its metrics, which may be those of the whole step's end:
   * what the metrics don't need is better freed in the last backward. Called also after an error. [main] */
  void (*discard)(ddh_inst* self, int32_t micro_batch) DDH_NX;
  /* Computes a program's n_reported values from its folded sums and counts (n_metrics each). NULL if no program has
   * `reported`. [main] */
  ddh_rc (*derive)(ddh_inst* self, int32_t program, const double* sums, const double* counts, double* values,
                   ddh_err* err) DDH_NX;
  /* Writes to `out` the contribution of a micro-batch whose forward is done to a buffer of DDH_SYNC_FOLD. It has the
   * size and dtype of the buffer. *given = 0: there is none, and the buffer does not change. Called with metrics. NULL
   * if no buffer is folded. [step] [may-block] */
  ddh_rc (*contribution)(ddh_inst* self, uint32_t buffer, int32_t program, int32_t micro_batch, void* out,
                         int32_t* given, ddh_err* err) DDH_NX;
  /* Gives estimates. The host computes FLOP/s from them, and shows estimated activations beside measured ones.
   * DDH_NOT_FOUND: the model has no estimate. May be NULL. [main] */
  ddh_rc (*estimate)(ddh_inst* self, const ddh_estimate_args* args, ddh_estimate* out, ddh_err* err) DDH_NX;
  /* Writes one block of a gradient that the view of the backward had as DDH_GRAD_LATER. Called after that backward, with
   * the same `call`, once for each block of the parameter in any order. After the last block of all such parameters of
   * the view the model frees what it kept for them. NULL: no parameter has a grad_block. [step] [stream-ordered] */
  ddh_rc (*gradient_block)(ddh_inst* self, const ddh_unit_call* call, const ddh_grad_block* block, ddh_err* err) DDH_NX;
} ddh_model_api;
#define DDH_MODEL_API_MIN_SIZE 104u

typedef struct ddh_sample_args {
  uint32_t struct_size;
  uint32_t length;    /* items to generate after the prompt; 0: only check the prompt */
  const char* prompt; /* may be "" */
  uint64_t seed;
  double temperature; /* 0: always the most likely item */
  int32_t top_k;      /* draw from the k most likely items; 0: from all */
  int32_t program;    /* the eval program that the host runs on the batches */
  int64_t condition;  /* index of a sample of that program to start from (an image, points); -1: none */
} ddh_sample_args;
#define DDH_SAMPLE_ARGS_MIN_SIZE 48u

/* Optional, "ddh.sampler/1": generates text or other data from the trained model. The host runs an eval program on each
 * batch, in the same way on every rank, until `next` gives no batch. */
typedef struct ddh_sampler_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Starts a sample. DDH_INVALID_ARGUMENT: the model can't read the prompt or the condition. [main] */
  ddh_rc (*begin)(ddh_inst* self, const ddh_sample_args* args, ddh_err* err) DDH_NX;
  /* Gives the next batch for the eval program, owned by the caller; *out = NULL at the end. It reads the outputs of the
   * previous batch before it draws the next item. [main] */
  ddh_rc (*next)(ddh_inst* self, ddh_batch** out, ddh_err* err) DDH_NX;
  /* The whole text so far, prompt included; owned by the model until the next call. [main] */
  const char* (*text)(ddh_inst* self)DDH_NX;
} ddh_sampler_api;
#define DDH_SAMPLER_API_MIN_SIZE 32u

#endif
