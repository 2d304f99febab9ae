// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/check_description.hpp"

#include <string>

#include "ddh/sdk/plugin.hpp"
#include "engine/calls/plain_text.hpp"

namespace ddhost {
namespace {

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

void check_program(const ddh_program_desc& program, uint32_t n_units) {
  const std::string who = ddh::str("program '", program.name, "'");
  check_indices(who, "unit", program.units, program.n_units, n_units);
  check_names(who, "metric", program.metrics, program.n_metrics);
  check_names(who, "reported value", program.reported, program.n_reported);
  if (program.sample_unit == nullptr && program.kind == DDH_PROGRAM_TRAIN) refuse(who, " has no sample_unit");
  if (program.kind < DDH_PROGRAM_TRAIN || program.kind > DDH_PROGRAM_UPDATE)
    refuse(who, " is of kind ", program.kind, ", which this host does not know");
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
  for (uint32_t g = 0; g < model->n_programs; ++g) check_program(*model->programs[g], model->n_units);
}

}  // namespace ddhost
