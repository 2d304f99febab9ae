// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/load.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "ddh/sdk/plugin.hpp"
#include "engine/numerics/kernels.hpp"
#include "engine/services/buffer_values.hpp"

namespace ddhost {
namespace {

std::string shape_text(const int64_t* shape, size_t n_dims) {
  std::string text = "[";
  for (size_t i = 0; i < n_dims; ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

WeightsFile::WeightsFile(const ddh_model_desc& model, const std::string& path) : model_(model), file_(path) {
  check(path);
}

void WeightsFile::check(const std::string& path) const {
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
    const SafetensorsFile::Tensor* tensor = file_.find(buffer.name);
    const std::vector<int64_t> want(buffer.shape, buffer.shape + buffer.n_dims);
    if (tensor == nullptr && buffer.sync == DDH_SYNC_NEVER) continue;  // it keeps the model's value
    if (tensor == nullptr || tensor->shape != want || tensor->dtype != buffer.dtype)
      ddh::fail(DDH_INVALID_ARGUMENT, "'", path, "' has no tensor '", buffer.name, "' of shape ",
                shape_text(want.data(), want.size()),
                " and the dtype that the model's buffer has; give a file of this model");
  }
}

void WeightsFile::set_buffers(Staging& staging) const {
  for (uint32_t b = 0; b < model_.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *model_.buffers[b];
    const SafetensorsFile::Tensor* tensor = file_.find(buffer.name);
    if (tensor != nullptr) set_buffer_values(buffer, tensor->data, staging);  // a missing one was accepted by the check
  }
}

const SafetensorsFile::Tensor* WeightsFile::find(const ddh_param_desc& param) const {
  const SafetensorsFile::Tensor* tensor = file_.find(param.name);
  for (const char* const* tied = param.tied_names; tensor == nullptr && tied != nullptr && *tied != nullptr; ++tied) {
    tensor = file_.find(*tied);
  }
  return tensor;
}

void WeightsFile::read_range(const ddh_param_desc& param, uint64_t offset, uint64_t numel, float* dst) const {
  const SafetensorsFile::Tensor* tensor = find(param);
  const auto* from = static_cast<const char*>(tensor->data) + offset * ddh_dtype_bytes(tensor->dtype);
  if (tensor->dtype == DDH_F32) {
    std::memcpy(dst, from, numel * sizeof(float));
  } else {
    // A file may place 16-bit values at odd addresses.
    std::array<uint16_t, 4096> piece{};
    for (uint64_t done = 0; done < numel; done += piece.size()) {
      const uint64_t n = std::min<uint64_t>(piece.size(), numel - done);
      std::memcpy(piece.data(), from + done * sizeof(uint16_t), n * sizeof(uint16_t));
      kernels::cast(dst + done, DDH_F32, piece.data(), tensor->dtype, n);
    }
  }
}

}  // namespace ddhost
