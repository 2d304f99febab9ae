// SPDX-License-Identifier: Apache-2.0
#include "services/param_init.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string_view>

#include "ddh/sdk/counter_rng.hpp"
#include "ddh/sdk/plugin.hpp"
#include "device/cpu/kernels.hpp"
#include "services/buffer_values.hpp"

namespace ddhost {
namespace {

std::string shape_text(const int64_t* shape, size_t n_dims) {
  std::string text = "[";
  for (size_t i = 0; i < n_dims; ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

ParamInit::ParamInit(const ddh_model_desc& model, uint64_t seed, const std::string& init_from)
    : model_(model), seed_(seed) {
  if (init_from.empty()) return;
  file_ = std::make_unique<SafetensorsFile>(init_from);
  check_file(init_from);
}

void ParamInit::check_file(const std::string& path) const {
  for (uint32_t p = 0; p < model_.n_params; ++p) {
    const ddh_param_desc& param = *model_.params[p];
    const SafetensorsFile::Tensor* tensor = find(param);
    if (tensor == nullptr) {
      ddh::fail(DDH_NOT_FOUND, "'", path, "' has no tensor '", param.name,
                "', which the model needs; give a file of this model");
    }
    const std::vector<int64_t> want(param.shape, param.shape + param.n_dims);
    if (tensor->shape != want) {
      ddh::fail(DDH_INVALID_ARGUMENT, "tensor '", param.name, "' in '", path, "' has shape ",
                shape_text(tensor->shape.data(), tensor->shape.size()), ", the model's is ",
                shape_text(want.data(), want.size()), "; set the model's options to those of the file");
    }
    if (tensor->dtype != DDH_F32 && tensor->dtype != DDH_BF16 && tensor->dtype != DDH_F16) {
      ddh::fail(DDH_UNIMPLEMENTED, "tensor '", param.name, "' in '", path,
                "' is neither F32 nor BF16 nor F16; convert the file");
    }
  }
  for (uint32_t b = 0; b < model_.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *model_.buffers[b];
    const SafetensorsFile::Tensor* tensor = file_->find(buffer.name);
    const std::vector<int64_t> want(buffer.shape, buffer.shape + buffer.n_dims);
    if (tensor == nullptr && buffer.sync == DDH_SYNC_NEVER) continue;  // it stays as the model made it
    if (tensor == nullptr || tensor->shape != want || tensor->dtype != buffer.dtype)
      ddh::fail(DDH_INVALID_ARGUMENT, "'", path, "' has no tensor '", buffer.name, "' of shape ",
                shape_text(want.data(), want.size()),
                " and the dtype that the model's buffer has; give a file of this model");
  }
}

void ParamInit::init_buffers(Staging& staging) const {
  for (uint32_t b = 0; file_ != nullptr && b < model_.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *model_.buffers[b];
    set_buffer_values(buffer, file_->find(buffer.name)->data, staging);
  }
}

const SafetensorsFile::Tensor* ParamInit::find(const ddh_param_desc& param) const {
  const SafetensorsFile::Tensor* tensor = file_->find(param.name);
  for (const char* const* tied = param.tied_names; tensor == nullptr && tied != nullptr && *tied != nullptr; ++tied) {
    tensor = file_->find(*tied);
  }
  return tensor;
}

void ParamInit::init_range(int32_t index, uint64_t offset, uint64_t numel, float* dst) const {
  if (index < 0 || static_cast<uint32_t>(index) >= model_.n_params) {
    ddh::fail(DDH_OUT_OF_RANGE, "parameter ", index, " of ", model_.n_params);
  }
  const ddh_param_desc& param = *model_.params[index];
  if (offset > param.numel || numel > param.numel - offset) {
    ddh::fail(DDH_OUT_OF_RANGE, "elements ", offset, " to ", offset + numel, " of parameter '", param.name,
              "', which has ", param.numel);
  }
  if (file_ == nullptr) return draw(param, offset, numel, dst);
  const SafetensorsFile::Tensor* tensor = find(param);
  const auto* from = static_cast<const char*>(tensor->data) + offset * ddh_dtype_bytes(tensor->dtype);
  if (tensor->dtype == DDH_F32) {
    std::memcpy(dst, from, numel * sizeof(float));
  } else {
    cpu::cast(dst, DDH_F32, from, tensor->dtype, numel);
  }
}

void ParamInit::draw(const ddh_param_desc& param, uint64_t offset, uint64_t numel, float* dst) const {
  const ddh::CounterRng rng(seed_, param.name);
  switch (param.init_kind) {
    case DDH_INIT_ZERO:
      std::fill_n(dst, numel, 0.0F);
      return;
    case DDH_INIT_CONSTANT:
      std::fill_n(dst, numel, static_cast<float>(param.init_a));
      return;
    case DDH_INIT_UNIFORM:
      for (uint64_t i = 0; i < numel; ++i) {
        dst[i] = static_cast<float>(param.init_a + (param.init_b - param.init_a) * rng.uniform(offset + i));
      }
      return;
    case DDH_INIT_NORMAL:
      for (uint64_t at = offset / 2 * 2; at < offset + numel; at += 2) {
        const auto [first, second] = rng.normal_pair(at / 2);
        const auto value = [&](float normal) {
          return static_cast<float>(param.init_a) + static_cast<float>(param.init_b) * normal;
        };
        if (at >= offset) dst[at - offset] = value(first);
        if (at + 1 < offset + numel) dst[at + 1 - offset] = value(second);
      }
      return;
    default:
      ddh::fail(DDH_UNIMPLEMENTED, "parameter '", param.name, "' has init kind ", param.init_kind,
                ", unknown to this host");
  }
}

}  // namespace ddhost
