// SPDX-License-Identifier: Apache-2.0
#include "engine/checks/check_model.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/safetensors.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// The checks of check_description: what it takes to read a description.

constexpr uint32_t kMaxCount = 1U << 24;  // maximum number of parameters, units ...; more is uninitialized data
constexpr uint32_t kMaxDims = 64;

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  ddh::fail(DDH_INVALID_ARGUMENT, parts..., "; fix the model");
}

// Checks an array of structs that begin with their size.
template <class T>
void check_array(const T* const* array, uint32_t count, uint32_t min_size, const char* what) {
  if (count > kMaxCount) refuse("the model describes ", count, " ", what, "s");
  if (count > 0 && array == nullptr) refuse("the model describes ", count, " ", what, "s at NULL");
  for (uint32_t i = 0; i < count; ++i) {
    if (array[i] == nullptr) refuse(what, " ", i, " of the model is NULL");
    if (array[i]->struct_size < min_size)
      refuse(what, " ", i, " of the model has struct_size ", array[i]->struct_size, ", but at least ", min_size,
             " are needed");
    if (array[i]->name == nullptr || array[i]->name[0] == '\0') refuse(what, " ", i, " of the model has no name");
  }
}

void check_shape(const char* what, const char* name, const int64_t* shape, uint32_t n_dims) {
  if (n_dims > kMaxDims)
    refuse(what, " '", name, "' has ", n_dims, " dimensions, at most ", kMaxDims, " are supported");
  if (n_dims > 0 && shape == nullptr) refuse(what, " '", name, "' has no shape (NULL)");
}

void check_param(const ddh_param_desc& param) {
  check_shape("parameter", param.name, param.shape, param.n_dims);
  if (param.dtype != DDH_F32 && param.dtype != DDH_BF16 && param.dtype != DDH_F16)
    refuse("parameter '", param.name, "' is stored in dtype ", param.dtype, "; use DDH_F32, DDH_BF16 or DDH_F16");
  if (param.compute_dtype != 0 && param.compute_dtype != DDH_F32 && param.compute_dtype != DDH_BF16 &&
      param.compute_dtype != DDH_F16)
    refuse("parameter '", param.name, "' has compute_dtype ", param.compute_dtype, ", which this host does not know");
}

// A list of indices below `limit`.
void check_indices(const std::string& who, const char* what, const int32_t* list, uint32_t count, uint32_t limit) {
  if (count > kMaxCount) refuse(who, " lists ", count, " ", what, "s");
  if (count > 0 && list == nullptr) refuse(who, " lists ", count, " ", what, "s at NULL");
  for (uint32_t i = 0; i < count; ++i)
    if (list[i] < 0 || static_cast<uint32_t>(list[i]) >= limit)
      refuse(who, " uses ", what, " ", list[i], " of ", limit);
}

void check_names(const std::string& who, const char* what, const char* const* names, uint32_t count) {
  if (count > kMaxCount || (count > 0 && names == nullptr)) refuse(who, " has ", count, " ", what, "s at NULL");
  for (uint32_t i = 0; i < count; ++i)
    if (names[i] == nullptr || names[i][0] == '\0') refuse(who, " has a ", what, " without a name");
}

void check_program_desc(const ddh_program_desc& program, uint32_t n_units) {
  const std::string who = ddh::str("program '", program.name, "'");
  check_indices(who, "unit", program.units, program.n_units, n_units);
  check_names(who, "metric", program.metrics, program.n_metrics);
  check_names(who, "reported value", program.reported, program.n_reported);
  if (program.sample_unit == nullptr && program.kind == DDH_PROGRAM_TRAIN) refuse(who, " has no sample_unit");
  if (program.kind < DDH_PROGRAM_TRAIN || program.kind > DDH_PROGRAM_UPDATE)
    refuse(who, " is of kind ", program.kind, ", which this host does not know");
}

void check_layout(const ddh_model_desc& model, const ddh_layout_desc& layout) {
  const std::string who = ddh::str("layout '", layout.name, "'");
  check_indices(who, "parameter", layout.transposed, layout.n_transposed, model.n_params);
  bool shows = false;
  for (uint32_t i = 0; i < layout.n_transposed; ++i) {
    const ddh_param_desc& param = *model.params[layout.transposed[i]];
    if (param.n_dims != 2)
      refuse(who, " transposes parameter '", param.name, "', which has ", param.n_dims, " dimensions, not 2");
    shows = shows || param.shape[0] != param.shape[1];
  }
  if (!shows) refuse(who, " transposes no parameter with two different sizes, so no file shows it");
}

// The checks of check_model: the rules of ddh/kind/model.h.

constexpr uint32_t kNoGradients = DDH_POSITION_FORWARD_ONLY | DDH_POSITION_INPUT_GRAD_ONLY;

// Whether the backward of this position computes gradients of the unit's parameters.
bool gives_gradients(const ddh_program_desc& program, uint32_t position) {
  return program.position_flags == nullptr || (program.position_flags[position] & kNoGradients) == 0;
}

bool uses_param(const ddh_unit_desc& unit, int32_t param) {
  return std::find(unit.params, unit.params + unit.n_params, param) != unit.params + unit.n_params;
}

// The first position of a unit that computes gradients; its backward is the last. n_units: none.
uint32_t first_with_gradients(const ddh_program_desc& program, int32_t unit) {
  uint32_t i = 0;
  while (i < program.n_units && !(program.units[i] == unit && gives_gradients(program, i))) ++i;
  return i;
}

void check_trained_param(const ddh_model_desc& model, const ddh_program_desc& program, uint32_t p) {
  const ddh_param_desc& param = *model.params[p];
  const char* const owner = model.units[param.owner_unit]->name;
  const int32_t* const end = program.units + program.n_units;
  if (std::find(program.units, end, param.owner_unit) == end)
    ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name, "' trains parameter '", param.name,
              "' but does not run its unit '", owner, "'; leave it out of the program's mask");
  const uint32_t last_backward = first_with_gradients(program, param.owner_unit);
  if (last_backward == program.n_units)
    ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name, "' trains parameter '", param.name,
              "', but no position of its unit '", owner,
              "' computes the gradients of parameters; leave the parameter out of the program's mask");
  for (uint32_t i = 0; i < last_backward; ++i) {
    if (!gives_gradients(program, i) || !uses_param(*model.units[program.units[i]], static_cast<int32_t>(p))) continue;
    ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name, "' trains parameter '", param.name, "', but unit '",
              model.units[program.units[i]]->name, "' computes a gradient of it at position ", i,
              ", after the last backward of its owner '", owner, "'; the owner's backward must be the last one");
  }
}

// Elements of a row, which all but the first dimension make.
uint64_t row_numel(const ddh_param_desc& param) {
  return param.n_dims == 0 ? 1 : param.numel / static_cast<uint64_t>(param.shape[0]);
}

void check_grad_block(const ddh_model_desc& model, uint32_t p) {
  const ddh_param_desc& param = *model.params[p];
  if (param.grad_block == 0) return;
  const uint64_t row = row_numel(param);
  if (param.grad_block % DDH_GRID != 0 || param.grad_block % row != 0 || param.grad_block > param.numel)
    ddh::fail(DDH_INVALID_ARGUMENT, "parameter '", param.name, "' has a grad_block of ", param.grad_block,
              ", but a block has whole rows of ", row, " elements, a multiple of ", DDH_GRID,
              " elements, and at most all ", param.numel, "; give such a number, or 0");
  uint32_t n_units = 0;
  for (uint32_t u = 0; u < model.n_units; ++u) n_units += uses_param(*model.units[u], static_cast<int32_t>(p)) ? 1 : 0;
  bool is_shared = n_units > 1;
  for (uint32_t g = 0; g < model.n_programs; ++g) {
    const ddh_program_desc& program = *model.programs[g];
    is_shared = is_shared || std::count(program.units, program.units + program.n_units, param.owner_unit) > 1;
  }
  if (is_shared)
    ddh::fail(DDH_INVALID_ARGUMENT, "parameter '", param.name, "' has a grad_block of ", param.grad_block,
              ", but several units or positions use it, whose gradients are added whole; give 0");
}

constexpr uint64_t kMaxNumel = uint64_t{1} << 44;  // 64 TiB in fp32

void check_params(const ddh_model_desc& model) {
  std::set<std::string> names;
  for (uint32_t p = 0; p < model.n_params; ++p) {
    const ddh_param_desc& param = *model.params[p];
    if (!names.insert(param.name).second)
      ddh::fail(DDH_ALREADY_EXISTS, "the model has two parameters named '", param.name, "'");
    uint64_t numel = 1;
    for (uint32_t d = 0; d < param.n_dims; ++d) {
      if (param.shape[d] <= 0)
        ddh::fail(DDH_INVALID_ARGUMENT, "parameter '", param.name, "' has a dimension of ", param.shape[d]);
      if (__builtin_mul_overflow(numel, static_cast<uint64_t>(param.shape[d]), &numel) || numel > kMaxNumel)
        ddh::fail(DDH_OUT_OF_RANGE, "parameter '", param.name, "' has more than 2^44 elements; make the model smaller");
    }
    if (numel != param.numel)
      ddh::fail(DDH_INVALID_ARGUMENT, "parameter '", param.name, "': numel is ", param.numel, ", its shape has ",
                numel);
    if (param.dtype != DDH_F32 && param.dtype != DDH_BF16 && param.dtype != DDH_F16)
      ddh::fail(DDH_UNIMPLEMENTED, "parameter '", param.name, "' is stored in dtype ", param.dtype,
                "; files of weights hold F32, BF16 or F16");
    if (param.compute_dtype != 0 && param.compute_dtype != DDH_F32)
      ddh::fail(DDH_UNIMPLEMENTED, "parameter '", param.name, "' has compute dtype ", param.compute_dtype,
                "; give 0 (the run's dtype) or DDH_F32");
    if (!std::isfinite(param.lr_scale) || param.lr_scale < 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "parameter '", param.name, "' has lr_scale ", param.lr_scale,
                "; give a finite factor above 0, or 0 for 1");
    if (param.owner_unit < 0 || static_cast<uint32_t>(param.owner_unit) >= model.n_units) {
      ddh::fail(DDH_OUT_OF_RANGE, "parameter '", param.name, "' is owned by unit ", param.owner_unit, " of ",
                model.n_units);
    }
  }
}

void check_buffers(const ddh_model_desc& model) {
  std::set<std::string> names;
  for (uint32_t p = 0; p < model.n_params; ++p) names.insert(model.params[p]->name);
  for (uint32_t b = 0; b < model.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *model.buffers[b];
    if (!names.insert(buffer.name).second)
      ddh::fail(DDH_ALREADY_EXISTS, "the model has two parameters or buffers named '", buffer.name, "'; fix the model");
    if (ddh_dtype_bytes(buffer.dtype) == 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "buffer '", buffer.name, "' has dtype ", buffer.dtype,
                ", which this host does not know; fix the model");
    if (buffer.data == nullptr && buffer.numel > 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "buffer '", buffer.name, "' has no memory; fix the model");
    uint64_t numel = 1;
    for (uint32_t d = 0; d < buffer.n_dims; ++d) {
      if (buffer.shape[d] < 0)
        ddh::fail(DDH_INVALID_ARGUMENT, "buffer '", buffer.name, "' has a dimension of ", buffer.shape[d],
                  "; fix the model");
      if (__builtin_mul_overflow(numel, static_cast<uint64_t>(buffer.shape[d]), &numel) || numel > kMaxNumel)
        ddh::fail(DDH_OUT_OF_RANGE, "buffer '", buffer.name, "' has more than 2^44 elements; make the model smaller");
    }
    if (numel != buffer.numel)
      ddh::fail(DDH_INVALID_ARGUMENT, "buffer '", buffer.name, "': numel is ", buffer.numel, ", its shape has ", numel,
                "; fix the model");
    if (buffer.sync != DDH_SYNC_STEP && buffer.sync != DDH_SYNC_NEVER && buffer.sync != DDH_SYNC_FOLD)
      ddh::fail(DDH_UNIMPLEMENTED, "buffer '", buffer.name, "' has sync ", buffer.sync,
                ", which this host does not know; use DDH_SYNC_STEP, DDH_SYNC_NEVER or DDH_SYNC_FOLD");
  }
}

void check_positions(const ddh_model_desc& model, const ddh_program_desc& program) {
  for (uint32_t i = 0; program.position_flags != nullptr && i < program.n_units; ++i) {
    const uint32_t flags = program.position_flags[i];
    const char* const unit = model.units[program.units[i]]->name;
    if ((flags & ~kNoGradients) != 0)
      ddh::fail(DDH_UNIMPLEMENTED, "program '", program.name, "' has flags ", flags, " at position ", i, " (unit '",
                unit, "'), but this host knows only ", kNoGradients, "; update ddhost");
    if (flags == kNoGradients)
      ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name, "' marks position ", i, " (unit '", unit,
                "') as forward only and as giving the gradient of the input; choose one");
  }
}

// The gradient of a trained parameter is completed by the owner's backward, so the program must contain the owner.
void check_trained(const ddh_model_desc& model, const ddh_program_desc& program) {
  if (program.kind != DDH_PROGRAM_TRAIN) return;
  for (uint32_t p = 0; p < model.n_params; ++p) {
    const bool frozen = (model.params[p]->attributes & DDH_PARAM_FROZEN) != 0;
    if (program.trainable != nullptr && program.trainable[p] > 1)
      ddh::fail(DDH_INVALID_ARGUMENT, "the mask of program '", program.name, "' holds ", int{program.trainable[p]},
                " for parameter '", model.params[p]->name, "'; give 0 (not trained) or 1");
    if (!frozen && (program.trainable == nullptr || program.trainable[p] != 0)) check_trained_param(model, program, p);
  }
}

void check_update(const ddh_program_desc& program) {
  if (program.kind != DDH_PROGRAM_UPDATE) return;
  const char* const has = program.trainable != nullptr                        ? "a mask of what it trains"
                          : program.n_metrics != 0 || program.n_reported != 0 ? "metrics"
                          : program.optimizer != 0                            ? "an optimizer"
                                                                              : nullptr;
  if (has != nullptr)
    ddh::fail(DDH_INVALID_ARGUMENT, "update program '", program.name, "' has ", has,
              ", but an update program only runs forward and changes no parameter; leave that out");
  if (program.n_samples == 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "update program '", program.name, "' has no samples; give it some");
}

// A parameter's owner is the first unit of every program that uses it: so its gradient is final after the owner's
// backward.
void check_program(const ddh_model_desc& model, const ddh_program_desc& program) {
  if (program.kind != DDH_PROGRAM_TRAIN && program.kind != DDH_PROGRAM_EVAL && program.kind != DDH_PROGRAM_UPDATE)
    ddh::fail(DDH_UNIMPLEMENTED, "program '", program.name, "' is of kind ", program.kind,
              ", which this host does not know; update ddhost");
  if (program.optimizer < 0)
    ddh::fail(DDH_OUT_OF_RANGE, "program '", program.name, "' has optimizer ", program.optimizer,
              "; it is an index in train.optimizers");
  check_update(program);
  if (program.n_units == 0) ddh::fail(DDH_INVALID_ARGUMENT, "program '", program.name, "' has no units");
  std::vector<bool> seen(model.n_params, false);
  for (uint32_t i = 0; i < program.n_units; ++i) {
    const int32_t u = program.units[i];
    if (u < 0 || static_cast<uint32_t>(u) >= model.n_units) {
      ddh::fail(DDH_OUT_OF_RANGE, "program '", program.name, "' uses unit ", u, " of ", model.n_units);
    }
    for (uint32_t k = 0; k < model.units[u]->n_params; ++k) {
      const auto p = static_cast<size_t>(model.units[u]->params[k]);
      if (!seen[p] && model.params[p]->owner_unit != u && program.kind == DDH_PROGRAM_TRAIN) {
        ddh::fail(DDH_INVALID_ARGUMENT, "unit '", model.units[u]->name, "' uses parameter '", model.params[p]->name,
                  "' before its owner in program '", program.name, "'; the owner must be the first unit that uses it");
      }
      seen[p] = true;
    }
  }
  check_positions(model, program);
  check_trained(model, program);
}

}  // namespace

void check_description(const ddh_model_desc* model) {
  if (model == nullptr) refuse("the model gave no description (NULL)");
  if (model->struct_size < DDH_MODEL_DESC_MIN_SIZE)
    refuse("the model's description has struct_size ", model->struct_size, ", but at least ", DDH_MODEL_DESC_MIN_SIZE,
           " are needed");
  if (model->name == nullptr) refuse("the model has no name");
  if (DDH_HAS(model, ddh_model_desc, meaning_of_ids) && model->meaning_of_ids != nullptr &&
      !is_utf8(model->meaning_of_ids))
    refuse("the meaning_of_ids of the model is not UTF-8");
  check_array(model->params, model->n_params, DDH_PARAM_DESC_MIN_SIZE, "parameter");
  check_array(model->units, model->n_units, DDH_UNIT_DESC_MIN_SIZE, "unit");
  check_array(model->buffers, model->n_buffers, DDH_BUFFER_DESC_MIN_SIZE, "buffer");
  check_array(model->programs, model->n_programs, DDH_PROGRAM_DESC_MIN_SIZE, "program");
  for (uint32_t p = 0; p < model->n_params; ++p) check_param(*model->params[p]);
  for (uint32_t b = 0; b < model->n_buffers; ++b)
    check_shape("buffer", model->buffers[b]->name, model->buffers[b]->shape, model->buffers[b]->n_dims);
  for (uint32_t u = 0; u < model->n_units; ++u)
    check_indices(ddh::str("unit '", model->units[u]->name, "'"), "parameter", model->units[u]->params,
                  model->units[u]->n_params, model->n_params);
  for (uint32_t g = 0; g < model->n_programs; ++g) check_program_desc(*model->programs[g], model->n_units);
  check_array(model->layouts, model->n_layouts, DDH_LAYOUT_DESC_MIN_SIZE, "layout");
  std::set<std::string> names = {"model"};  // the model's own
  for (uint32_t l = 0; l < model->n_layouts; ++l) {
    check_layout(*model, *model->layouts[l]);
    if (!names.insert(model->layouts[l]->name).second)
      refuse("layout ", l, " of the model has the name '", model->layouts[l]->name, "', which is taken");
  }
}

void check_features(const ddh_model_desc& model, uint64_t uses) {
  const auto require = [&](uint64_t bit, const char* name, const std::string& what) {
    if ((uses & bit) == 0)
      ddh::fail(DDH_FAILED_PRECONDITION, what, ", but the plugin of model '", model.name, "' does not set ", name,
                " in ddh_desc.uses; set it there, so that strategies without it are refused");
  };
  for (uint32_t p = 0; p < model.n_params; ++p) {
    if (model.params[p]->compute_dtype != 0)
      require(DDH_FEATURE_PARAM_DTYPES, "DDH_FEATURE_PARAM_DTYPES",
              ddh::str("parameter '", model.params[p]->name, "' has a compute dtype of its own"));
  }
  for (uint32_t g = 0; g < model.n_programs; ++g) {
    const ddh_program_desc& program = *model.programs[g];
    const std::string name = ddh::str("program '", program.name, "'");
    if (program.kind == DDH_PROGRAM_UPDATE)
      require(DDH_FEATURE_UPDATES, "DDH_FEATURE_UPDATES", name + " is an update program");
    if (program.optimizer != 0)
      require(DDH_FEATURE_OPTIMIZERS, "DDH_FEATURE_OPTIMIZERS", name + " has a further optimizer");
    for (uint32_t i = 0; program.position_flags != nullptr && i < program.n_units; ++i) {
      if (program.position_flags[i] != 0)
        require(DDH_FEATURE_POSITIONS, "DDH_FEATURE_POSITIONS", name + " has flags of positions");
    }
  }
}

std::vector<std::string> unused_optimizers(const ddh_model_desc& model, const std::vector<int32_t>& train_programs,
                                           const std::vector<std::string>& sections) {
  std::vector<bool> is_used(sections.size(), false);
  for (const int32_t g : train_programs) {
    const ddh_program_desc& program = *model.programs[g];
    if (static_cast<size_t>(program.optimizer) >= sections.size())
      ddh::fail(DDH_OUT_OF_RANGE, "program '", program.name, "' is trained by optimizer ", program.optimizer,
                " (counted from 0), but the run has only ", sections.size(),
                "; name more sections in train.optimizers, such as [\"optimizer\", \"optimizer_", program.name, "\"]");
    is_used[static_cast<size_t>(program.optimizer)] = true;
  }
  std::vector<std::string> unused;
  for (size_t i = 0; i < sections.size(); ++i) {
    if (!is_used[i]) unused.push_back(sections[i]);
  }
  return unused;
}

void check_same_everywhere(const std::vector<Fingerprint>& fingerprints, const Comm& comm) {
  std::vector<uint64_t> mine;
  for (const Fingerprint& fingerprint : fingerprints) mine.push_back(fingerprint.hash);
  const size_t n = mine.size(), n_ranks = static_cast<size_t>(comm.world_size());
  std::vector<uint64_t> all(n * n_ranks);
  comm.all_gather_bytes(mine.data(), all.data(), n * sizeof(uint64_t), "compare plugins and configuration");
  for (size_t r = 1; r < n_ranks; ++r) {
    for (size_t i = 0; i < n; ++i) {
      if (all[r * n + i] == all[i]) continue;
      ddh::fail(DDH_FAILED_PRECONDITION, "rank ", r, " has another ", fingerprints[i].of,
                " than rank 0; start every rank with the same files and options");
    }
  }
}

std::vector<Fingerprint> data_fingerprints(const ddh_model_desc& model) {
  const std::string meaning = meaning_of_ids(model);
  std::vector<Fingerprint> out = {{"meaning of the data's ids", sum_of(meaning.data(), meaning.size())}};
  for (uint32_t g = 0; g < model.n_programs; ++g)
    out.push_back(
        {ddh::str("number of samples of program '", model.programs[g]->name, "'"), model.programs[g]->n_samples});
  return out;
}

void check_model(const ddh_model_desc& model, uint64_t uses) {
  if (model.n_params == 0 || model.n_units == 0 || model.n_programs == 0) {
    ddh::fail(DDH_INVALID_ARGUMENT, "model '", model.name, "' describes no parameters, units or programs");
  }
  if (model.n_programs > 64)
    ddh::fail(DDH_OUT_OF_RANGE, "model '", model.name, "' has ", model.n_programs,
              " programs, at most 64 are supported");
  check_params(model);
  check_buffers(model);
  for (uint32_t u = 0; u < model.n_units; ++u) {
    for (uint32_t k = 0; k < model.units[u]->n_params; ++k) {
      const int32_t p = model.units[u]->params[k];
      if (p < 0 || static_cast<uint32_t>(p) >= model.n_params) {
        ddh::fail(DDH_OUT_OF_RANGE, "unit '", model.units[u]->name, "' uses parameter ", p, " of ", model.n_params);
      }
    }
  }
  for (uint32_t g = 0; g < model.n_programs; ++g) check_program(model, *model.programs[g]);
  for (uint32_t p = 0; p < model.n_params; ++p) check_grad_block(model, p);
  check_features(model, uses);
}

template <class T>
ModelCopy::List<T>::List(const T* const* given, uint32_t n, const char* what) {
  if (n > 0 && given == nullptr)
    ddh::fail(DDH_INVALID_ARGUMENT, "the model describes ", n, ' ', what,
              "s but gives no array of them; fix the model");
  copies.reserve(n);
  for (uint32_t i = 0; i < n; ++i) {
    try {
      copies.push_back(ddh::copy_of(given[i]));
    } catch (const ddh::Error& error) {
      ddh::fail(error.code(), what, ' ', i, " of the model: ", error.what());
    }
  }
  for (const T& copy : copies) pointers.push_back(&copy);
}

ModelCopy::ModelCopy(const ddh_model_desc* given) : desc_{ddh::copy_of(given)} {
  ddh_model_desc& mine = desc_.front();
  params_ = List<ddh_param_desc>(mine.params, mine.n_params, "parameter");
  units_ = List<ddh_unit_desc>(mine.units, mine.n_units, "unit");
  buffers_ = List<ddh_buffer_desc>(mine.buffers, mine.n_buffers, "buffer");
  programs_ = List<ddh_program_desc>(mine.programs, mine.n_programs, "program");
  layouts_ = List<ddh_layout_desc>(mine.layouts, mine.n_layouts, "layout");
  mine.layouts = layouts_.pointers.data();
  mine.params = params_.pointers.data();
  mine.units = units_.pointers.data();
  mine.buffers = buffers_.pointers.data();
  mine.programs = programs_.pointers.data();
}

}  // namespace ddhost
