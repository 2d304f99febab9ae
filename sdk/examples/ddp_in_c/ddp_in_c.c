/* SPDX-License-Identifier: Apache-2.0
 *
 * ddp_in_c: data parallelism in plain C, one file against plugin_api alone. From the root of the checkout:
 *
 *   gcc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -Iplugin_api/include -o ddp_in_c.so sdk/examples/ddp_in_c/*.c
 *   build/ddhost --strategy ./ddp_in_c.so --nproc 2
 *
 * Every rank owns all parameters, gradients and optimizer slots: 16 P bytes with AdamW, and 4 P more where
 * micro-batches are accumulated in rank_first order. One all_reduce for each unit; in rank_first order, one more for
 * each further micro-batch. It trains to the same bits as plugins/ddp.so, which gets there with fewer copies. */
#include <stdlib.h>
#include <string.h>

#include "ddh/ddh.h"

#define TRY(call)                  \
  do {                             \
    const ddh_rc rc_ = (call);     \
    if (rc_ != DDH_OK) return rc_; \
  } while (0)

enum { MAX_SLOTS = 8 };

/* What is known of one parameter besides its description. */
typedef struct param_state {
  uint64_t offset; /* first element in the flat space, a multiple of 64 */
  int32_t written; /* its gradient buffer holds something of this micro-batch (rank_first) or step (micro_first) */
  int32_t reduced; /* its gradient in this step is summed over the ranks */
} param_state;

/* The parameters of a unit lie side by side, in the order of the model: one all_reduce covers them. */
typedef struct unit_state {
  uint64_t offset, numel;
  uint32_t reductions; /* in this step */
  uint32_t reserved0;
  ddh_param_view* views;
} unit_state;

struct ddh_inst {
  void* h; /* first argument of every service of the host */
  const ddh_alloc_api* alloc;
  const ddh_comm_api* comm;
  const ddh_optim_api* optim;
  const ddh_params_api* init;
  ddh_attach_args args;
  const ddh_model_desc* model;
  param_state* params;
  unit_state* units;
  ddh_range* ranges; /* scratch for n_params ranges */
  uint64_t numel;    /* of the whole flat space, padding included */
  uint64_t version;
  int32_t program; /* of this step */
  uint32_t n_slots;
  float *values, *grads, *sums; /* sums: NULL where grads themselves hold the sum */
  void* slots[MAX_SLOTS];
};

static int accumulates(const ddh_inst* s) {
  return s->args.grad_accum_steps > 1 && s->args.reduce_order == DDH_RANK_FIRST;
}

static int trained_in(const ddh_inst* s, int32_t param, int32_t program) {
  for (uint32_t i = 0; i < s->args.n_programs; ++i) {
    const ddh_run_program* p = ddh_attach_program(&s->args, i);
    if (p->program == program) return p->trains != NULL && p->trains[param] != 0;
  }
  return 0;
}

/* ---- attach, plan, materialize ---------------------------------------------------------------------- */

static ddh_rc lay_out(ddh_inst* s, ddh_err* err) {
  const ddh_model_desc* m = s->model;
  s->params = calloc(m->n_params, sizeof *s->params);
  s->units = calloc(m->n_units, sizeof *s->units);
  s->ranges = calloc(m->n_params, sizeof *s->ranges);
  if (s->params == NULL || s->units == NULL || s->ranges == NULL)
    return ddh_fail(err, DDH_RESOURCE_EXHAUSTED, "ddp_in_c: out of memory for its tables; use a smaller model");
  for (uint32_t u = 0; u < m->n_units; ++u) {
    unit_state* unit = &s->units[u];
    unit->offset = s->numel;
    for (uint32_t p = 0; p < m->n_params; ++p) {
      if (m->params[p]->owner_unit != (int32_t)u) continue;
      s->params[p].offset = s->numel;
      s->numel += (m->params[p]->numel + DDH_GRID - 1) / DDH_GRID * DDH_GRID;
    }
    unit->numel = s->numel - unit->offset;
    unit->views = calloc(m->units[u]->n_params, sizeof *unit->views);
    if (unit->views == NULL && m->units[u]->n_params > 0)
      return ddh_fail(err, DDH_RESOURCE_EXHAUSTED, "ddp_in_c: out of memory for its views; use a smaller model");
  }
  return DDH_OK;
}

static ddh_rc attach(ddh_inst* s, const ddh_attach_args* args, ddh_err* err) {
  ddh_slot_desc slot;
  int32_t rank = 0, size = 0;
  uint32_t caps = 0;
  /* The host's struct may be shorter than these headers': what it lacks stays zero. */
  memcpy(&s->args, args, args->struct_size < sizeof s->args ? args->struct_size : sizeof s->args);
  s->model = args->model;
  if (args->compute_dtype != DDH_F32)
    return ddh_fail(err, DDH_FAILED_PRECONDITION, "ddp_in_c computes in fp32; set precision.compute=fp32");
  TRY(s->comm->group_info(s->h, args->group, &rank, &size, &caps, err));
  if (accumulates(s) && (caps & DDH_COMM_INITIAL) == 0)
    return ddh_fail(err, DDH_FAILED_PRECONDITION,
                    "to accumulate micro-batches, ddp_in_c starts sums from a value (DDH_COMM_INITIAL), which this "
                    "transport can't do; set train.reduce_order=micro_first");
  s->n_slots = s->optim->slot_count(s->h);
  if (s->n_slots > MAX_SLOTS)
    return ddh_fail(err, DDH_FAILED_PRECONDITION, "ddp_in_c keeps up to 8 optimizer slots; choose another optimizer");
  for (uint32_t i = 0; i < s->n_slots; ++i) {
    memset(&slot, 0, sizeof slot);
    slot.struct_size = sizeof slot;
    TRY(s->optim->slot(s->h, i, &slot, err));
    if (slot.dtype != DDH_F32 || slot.extent != DDH_SLOT_PER_ELEMENT)
      return ddh_fail(err, DDH_FAILED_PRECONDITION,
                      "ddp_in_c keeps fp32 slots of the parameter's size; choose another optimizer");
  }
  return lay_out(s, err);
}

static int unit_is_trained_in(const ddh_inst* s, int32_t unit, int32_t program) {
  for (uint32_t p = 0; p < s->model->n_params; ++p)
    if (s->model->params[p]->owner_unit == unit && trained_in(s, (int32_t)p, program)) return 1;
  return 0;
}

static ddh_rc plan(ddh_inst* s, ddh_plan* out, ddh_err* err) {
  const uint64_t bytes = s->numel * sizeof(float);
  const uint32_t per_unit = s->args.reduce_order == DDH_RANK_FIRST ? s->args.grad_accum_steps : 1;
  const int32_t program = s->args.n_programs == 0 ? -1 : ddh_attach_program(&s->args, 0)->program;
  (void)err;
  out->param_bytes = bytes;
  out->grad_bytes = accumulates(s) ? 2 * bytes : bytes;
  out->optim_bytes = s->n_slots * bytes;
  out->comm_bytes = out->reduce_calls = out->publish_calls = 0;
  for (uint32_t u = 0; u < s->model->n_units; ++u)
    if (unit_is_trained_in(s, (int32_t)u, program)) out->reduce_calls += per_unit;
  return DDH_OK;
}

static ddh_rc flat_buffer(ddh_inst* s, int32_t tag, const char* name, void** out, ddh_err* err) {
  const ddh_alloc_args args = {sizeof args, tag, s->numel * sizeof(float), DDH_MEM_DEVICE, DDH_ALLOC_ZERO, name};
  return s->alloc->allocate(s->h, &args, out, err);
}

static ddh_rc materialize(ddh_inst* s, ddh_err* err) {
  void* p = NULL;
  TRY(flat_buffer(s, DDH_TAG_PARAM, "ddp_in_c parameters", &p, err));
  s->values = p;
  TRY(flat_buffer(s, DDH_TAG_GRAD, "ddp_in_c gradients", &p, err));
  s->grads = p;
  if (accumulates(s)) {
    TRY(flat_buffer(s, DDH_TAG_GRAD, "ddp_in_c sums of gradients", &p, err));
    s->sums = p;
  }
  for (uint32_t i = 0; i < s->n_slots; ++i)
    TRY(flat_buffer(s, DDH_TAG_OPTIM, "ddp_in_c optimizer slots", &s->slots[i], err));
  for (uint32_t i = 0; i < s->model->n_params; ++i)
    TRY(s->init->init_range(s->h, (int32_t)i, 0, s->model->params[i]->numel, s->values + s->params[i].offset, err));
  s->version = 1;
  return DDH_OK;
}

/* ---- the step ---------------------------------------------------------------------------------------- */

static ddh_rc step_begin(ddh_inst* s, const ddh_step_begin_args* args, ddh_err* err) {
  (void)err;
  s->program = args->program;
  for (uint32_t p = 0; p < s->model->n_params; ++p) s->params[p].written = s->params[p].reduced = 0;
  for (uint32_t u = 0; u < s->model->n_units; ++u) s->units[u].reductions = 0;
  return DDH_OK;
}

static ddh_rc acquire(ddh_inst* s, const ddh_unit_use* use, ddh_unit_view* out, ddh_err* err) {
  const ddh_unit_desc* unit = s->model->units[use->unit];
  ddh_param_view* views = s->units[use->unit].views;
  (void)err;
  for (uint32_t i = 0; i < unit->n_params; ++i) {
    const int32_t p = unit->params[i];
    param_state* state = &s->params[p];
    memset(&views[i], 0, sizeof views[i]);
    views[i].param = p;
    views[i].dtype = DDH_F32;
    views[i].data = s->values + state->offset;
    views[i].numel = s->model->params[p]->numel;
    if (use->phase != DDH_PHASE_BACKWARD || (use->flags & DDH_OP_INPUT_GRAD_ONLY) != 0) continue;
    if (!trained_in(s, p, use->program)) continue;
    views[i].grad = s->grads + state->offset;
    views[i].grad_dtype = DDH_F32;
    views[i].grad_mode = state->written ? DDH_GRAD_ADD : DDH_GRAD_WRITE;
    state->written = 1;
  }
  out->n_params = unit->n_params;
  out->params = views;
  out->param_stride = sizeof *views;
  out->version = s->version;
  return DDH_OK;
}

static ddh_rc release(ddh_inst* s, const ddh_unit_use* use, ddh_err* err) {
  (void)s, (void)use, (void)err;
  return DDH_OK;
}

static ddh_rc grads_ready(ddh_inst* s, const ddh_unit_use* use, ddh_err* err) {
  unit_state* unit = &s->units[use->unit];
  const int last = (uint32_t)use->micro_batch + 1 == s->args.grad_accum_steps;
  if (s->args.reduce_order == DDH_MICRO_FIRST && !last) return DDH_OK;
  if (!unit_is_trained_in(s, use->unit, use->program)) return DDH_OK;

  float* grads = s->grads + unit->offset;
  float* total = s->sums != NULL ? s->sums + unit->offset : grads;
  ddh_coll sum;
  memset(&sum, 0, sizeof sum);
  sum.struct_size = sizeof sum;
  sum.dtype = DDH_F32;
  sum.op = DDH_SUM;
  sum.send = grads;
  sum.recv = total;
  sum.initial = unit->reductions == 0 ? NULL : total; /* a further micro-batch: the sum starts from the earlier ones */
  sum.count = unit->numel;
  sum.group = s->args.group;
  sum.stream = use->stream;
  sum.label = s->model->units[use->unit]->name;
  TRY(s->comm->all_reduce(s->h, &sum, err));
  ++unit->reductions;

  for (uint32_t p = 0; p < s->model->n_params; ++p) {
    if (s->model->params[p]->owner_unit != use->unit || !trained_in(s, (int32_t)p, use->program)) continue;
    s->params[p].written = 0;
    s->params[p].reduced = 1;
  }
  return DDH_OK;
}

/* The parameters that got a gradient in this step: all of them, or one share per rank. */
static uint32_t reduced_ranges(ddh_inst* s, int one_share) {
  uint32_t n = 0;
  for (uint32_t p = 0; p < s->model->n_params; ++p) {
    const int mine = p % (uint32_t)s->args.world_size == (uint32_t)s->args.rank;
    if (!s->params[p].reduced || (one_share && !mine)) continue;
    s->ranges[n].param = (int32_t)p;
    s->ranges[n].param_offset = 0;
    s->ranges[n].flat_offset = s->params[p].offset;
    s->ranges[n].numel = s->model->params[p]->numel;
    ++n;
  }
  return n;
}

static ddh_rc step(ddh_inst* s, ddh_err* err) {
  const float* grads = s->sums != NULL ? s->sums : s->grads;
  const ddh_step_block* block = NULL;
  ddh_optim_shard shard;
  uint32_t n = reduced_ranges(s, 1); /* each block counts once in the norm, whichever rank counts it */
  TRY(s->optim->add_gradient(s->h, grads, s->ranges, n, err));
  TRY(s->optim->decide(s->h, &block, err));

  n = reduced_ranges(s, 0);
  memset(&shard, 0, sizeof shard);
  shard.struct_size = sizeof shard;
  shard.n_ranges = n;
  shard.ranges = s->ranges;
  shard.master = s->values;
  shard.n_grads = 1;
  shard.grads = &grads;
  shard.slots = s->slots;
  shard.n_slots = s->n_slots;
  /* For optimizers that need norms of parameters; for others it does nothing. */
  TRY(s->optim->prepare(s->h, &shard, s->args.rank, s->args.world_size, NULL, err));
  TRY(s->optim->sum_norms(s->h, err));
  TRY(s->optim->update(s->h, &shard, NULL, err));
  ++s->version;
  return DDH_OK;
}

/* ---- state --------------------------------------------------------------------------------------------- */

static ddh_rc state(ddh_inst* s, ddh_state_entry* entries, uint64_t stride, uint32_t* n, ddh_err* err) {
  const uint32_t count = s->model->n_params * (1 + s->n_slots);
  char* at = (char*)entries;
  if (entries != NULL && *n < count)
    return ddh_fail(err, DDH_OUT_OF_RANGE, "ddp_in_c: no room for all state entries; ask for their number first");
  *n = count;
  if (entries == NULL) return DDH_OK;
  for (uint32_t p = 0; p < s->model->n_params; ++p) {
    for (uint32_t i = 0; i <= s->n_slots; ++i, at += stride) { /* 0 the values, then the slots */
      float* base = i == 0 ? s->values : s->slots[i - 1];
      ddh_state_entry e = {sizeof e,
                           (int32_t)p,
                           i == 0 ? DDH_STATE_PARAM : DDH_STATE_SLOT,
                           0,
                           DDH_F32,
                           DDH_MEM_DEVICE,
                           0,
                           s->model->params[p]->numel,
                           base + s->params[p].offset,
                           s->args.rank,
                           s->args.world_size};
      e.slot = i == 0 ? 0 : (int32_t)i - 1;
      memcpy(at, &e, stride < sizeof e ? stride : sizeof e);
    }
  }
  return DDH_OK;
}

static ddh_rc state_commit(ddh_inst* s, ddh_err* err) {
  (void)err;
  ++s->version;
  return DDH_OK;
}

static const ddh_strategy_api kStrategy = {sizeof(ddh_strategy_api),
                                           0,
                                           attach,
                                           plan,
                                           materialize,
                                           step_begin,
                                           acquire,
                                           release,
                                           grads_ready,
                                           step,
                                           state,
                                           state_commit,
                                           NULL,
                                           NULL};

/* ---- the library ----------------------------------------------------------------------------------------- */

static const char* const kNeeds[] = {DDH_ALLOC_IFACE, DDH_COMM_IFACE, DDH_OPTIM_IFACE, DDH_PARAMS_IFACE, NULL};

static ddh_rc create(const ddh_create* args, ddh_inst** out, ddh_err* err) {
  const ddh_host* host = args->host;
  ddh_inst* s = calloc(1, sizeof *s);
  if (s == NULL) return ddh_fail(err, DDH_RESOURCE_EXHAUSTED, "ddp_in_c: out of memory");
  s->h = host->h;
  s->alloc = host->get_interface(host->h, DDH_ALLOC_IFACE);
  s->comm = host->get_interface(host->h, DDH_COMM_IFACE);
  s->optim = host->get_interface(host->h, DDH_OPTIM_IFACE);
  s->init = host->get_interface(host->h, DDH_PARAMS_IFACE);
  *out = s;
  return DDH_OK;
}

static const void* get_interface(ddh_inst* s, const char* id) {
  (void)s;
  return strcmp(id, DDH_STRATEGY_IFACE) == 0 ? &kStrategy : NULL;
}

static void destroy(ddh_inst* s) {
  s->alloc->release(s->h, s->values);
  s->alloc->release(s->h, s->grads);
  s->alloc->release(s->h, s->sums);
  for (uint32_t i = 0; i < s->n_slots && i < MAX_SLOTS; ++i) s->alloc->release(s->h, s->slots[i]);
  for (uint32_t u = 0; s->units != NULL && u < s->model->n_units; ++u) free(s->units[u].views);
  free(s->units);
  free(s->params);
  free(s->ranges);
  free(s);
}

static const ddh_build kBuild = DDH_BUILD_INIT;
static const ddh_desc kDesc = {
    .struct_size = sizeof(ddh_desc),
    .kind = DDH_KIND_STRATEGY,
    .id = "ddp_in_c",
    .version = "0.1.0",
    .summary = "replicate everything; all_reduce gradients (plain C)",
    .needs = kNeeds,
    .caps = DDH_CAP_IN_PROCESS | DDH_CAP_DRY_ATTACH,
    .understands = DDH_FEATURE_POSITIONS | DDH_FEATURE_UPDATES,
};
static const ddh_desc* const kDescs[] = {&kDesc};
static const ddh_module kModule = {sizeof(ddh_module), 1, kDescs, &kBuild, create, get_interface, destroy};
DDH_PLUGIN(kModule, "strategy:ddp_in_c");
