// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_layout.hpp"

#include "checkpoint/meaning_of_ids.hpp"
#include "checkpoint/safetensors.hpp"

namespace ddhost {
namespace {

StoredTensor tensor_of(TensorKind kind, std::string name, int32_t dtype, const int64_t* shape, uint32_t n_dims,
                       uint64_t numel) {
  return {kind, std::move(name), dtype, {shape, shape + n_dims}, numel * ddh_dtype_bytes(dtype), 0, 0, 0, dtype, {}};
}

}  // namespace

CheckpointLayout::CheckpointLayout(const ddh_model_desc& model, const Optimizers& optimizers)
    : of_other_programs_(layouts_of(model)) {
  for (uint32_t p = 0; p < model.n_params; ++p) {
    const ddh_param_desc& d = *model.params[p];
    tensors_.push_back(tensor_of(TensorKind::param, d.name, DDH_F32, d.shape, d.n_dims, d.numel));
    tensors_.back().export_dtype = d.dtype;
    for (const char* const* tied = d.tied_names; tied != nullptr && *tied != nullptr; ++tied)
      tensors_.back().tied_names.emplace_back(*tied);
  }
  first_buffer_ = tensors_.size();
  for (uint32_t b = 0; b < model.n_buffers; ++b) {
    const ddh_buffer_desc& d = *model.buffers[b];
    tensors_.push_back(tensor_of(TensorKind::buffer, d.name, d.dtype, d.shape, d.n_dims, d.numel));
  }
  const size_t first_slot = tensors_.size();
  for (uint32_t s = 0; s < optimizers.slot_count(); ++s) {
    const ddh_slot_desc& slot = optimizers.slot(s);
    slots_.emplace_back(model.n_params, -1);
    for (uint32_t p = 0; p < model.n_params; ++p) {
      if (!optimizers.slot_used(s, static_cast<int32_t>(p))) continue;
      const ddh_param_desc& d = *model.params[p];
      slots_.back()[p] = static_cast<int64_t>(tensors_.size());
      tensors_.push_back(
          tensor_of(TensorKind::slot, std::string(slot.name) + "/" + d.name, slot.dtype, d.shape, d.n_dims, d.numel));
    }
  }
  files_[0].name = "model.safetensors";
  files_[1].name = "optimizer.safetensors";
  place(0, 0, first_slot, weights_metadata(meaning_of_ids(model)));
  place(1, first_slot, tensors_.size(), weights_metadata(""));
}

void CheckpointLayout::place(size_t file, size_t begin, size_t end,
                             const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsLayout::Item> items;
  for (size_t i = begin; i < end; ++i) items.push_back({tensors_[i].name, tensors_[i].dtype, tensors_[i].shape});
  const SafetensorsLayout plan(items, metadata);
  files_[file].header = plan.header;
  files_[file].bytes = plan.file_bytes;
  for (size_t i = begin; i < end; ++i) {
    tensors_[i].file = file;
    tensors_[i].offset = plan.file_offsets[i - begin];
    tensors_[i].first_chunk = chunks_;
    chunks_ += tensors_[i].chunks();
  }
}

}  // namespace ddhost
