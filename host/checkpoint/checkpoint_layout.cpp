// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_layout.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include "checkpoint/safetensors.hpp"
#include "engine/numerics/kernels.hpp"

namespace ddhost {
namespace {

StoredTensor tensor_of(TensorKind kind, std::string name, int32_t dtype, const int64_t* shape, uint32_t n_dims,
                       uint64_t numel) {
  return {kind, std::move(name), dtype, {shape, shape + n_dims}, numel * ddh_dtype_bytes(dtype), 0, 0, 0, dtype, {}};
}

}  // namespace

const char* kind_text(TensorKind kind) {
  constexpr std::array<const char*, 4> kTexts = {"parameter", "optimizer state", "buffer", "state of the strategy"};
  return kTexts.at(static_cast<size_t>(kind));
}

std::vector<StoredLayout> layouts_of(const ddh_model_desc& model) {
  std::vector<StoredLayout> out;
  for (uint32_t l = 0; l < model.n_layouts; ++l) {
    const ddh_layout_desc& given = *model.layouts[l];
    StoredLayout& layout = out.emplace_back();
    layout.name = given.name;
    layout.refused = given.refused == nullptr ? "" : given.refused;
    for (uint32_t i = 0; i < given.n_transposed; ++i) layout.transposed.insert(model.params[given.transposed[i]]->name);
  }
  return out;
}

StoredLayout layout_shown(const std::vector<StoredLayout>& layouts, const std::vector<FoundShape>& shapes) {
  for (const StoredLayout& layout : layouts)
    for (const FoundShape& s : shapes)
      if (s.found != s.wanted && is_transposed_shape(s.found, s.wanted) && layout.transposed.contains(s.param))
        return layout;
  return {};
}

std::string layout_note(const std::string& what, const StoredLayout& layout) {
  return what + " stores linear weights as " + layout.name + " does, [in, out]: they are transposed";
}

// Element i of [out, in] is in row i % in of the file's [in, out].
void read_transposed(const ddh::FileTensor& tensor, uint64_t offset, uint64_t numel, float* dst) {
  const auto in = static_cast<uint64_t>(tensor.shape[0]), out = static_cast<uint64_t>(tensor.shape[1]);
  const uint64_t width = ddh_dtype_bytes(tensor.dtype);
  alignas(float) std::array<char, 4096> piece{};
  for (uint64_t done = 0; done < numel;) {
    const uint64_t n = std::min<uint64_t>(piece.size() / width, numel - done);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t at = offset + done + i, element = at % in * out + at / in;
      std::memcpy(piece.data() + i * width, static_cast<const char*>(tensor.data) + element * width, width);
    }
    kernels::cast(dst + done, DDH_F32, piece.data(), tensor.dtype, n);
    done += n;
  }
}

CheckpointLayout::CheckpointLayout(const ddh_model_desc& model, const Optimizers& optimizers,
                                   const std::vector<uint8_t>& shown, std::span<const StrategyTensor> strategy)
    : of_other_programs_(layouts_of(model)) {
  for (uint32_t p = 0; p < model.n_params; ++p) {
    const ddh_param_desc& d = *model.params[p];
    tensors_.push_back(tensor_of(TensorKind::param, d.name, DDH_F32, d.shape, d.n_dims, d.numel));
    tensors_.back().export_dtype = d.dtype;
    for (const char* const* tied = d.tied_names; tied != nullptr && *tied != nullptr; ++tied)
      tensors_.back().tied_names.emplace_back(*tied);
    masters_.push_back(p);
  }
  first_buffer_ = tensors_.size();
  for (uint32_t b = 0; b < model.n_buffers; ++b) {
    const ddh_buffer_desc& d = *model.buffers[b];
    tensors_.push_back(tensor_of(TensorKind::buffer, d.name, d.dtype, d.shape, d.n_dims, d.numel));
    tensors_.back().holds_any_value = d.sync == DDH_SYNC_NEVER;
  }
  const size_t first_slot = tensors_.size();
  for (uint32_t s = 0; s < optimizers.slot_count(); ++s) {
    const ddh_slot_desc& slot = optimizers.slot(s);
    slots_.emplace_back(model.n_params, -1);
    if (optimizers.is_master_slot(s)) {
      for (uint32_t p = 0; p < shown.size(); ++p)
        if (shown[p] != 0 && optimizers.slot_used(s, static_cast<int32_t>(p))) slots_.back()[p] = p;
      continue;
    }
    for (uint32_t p = 0; p < model.n_params; ++p) {
      if (!optimizers.slot_used(s, static_cast<int32_t>(p))) continue;
      const ddh_param_desc& d = *model.params[p];
      slots_.back()[p] = static_cast<int64_t>(tensors_.size());
      const std::string name = std::string(slot.name) + "/" + d.name;
      if (slot.extent == DDH_SLOT_PER_ELEMENT) {
        tensors_.push_back(tensor_of(TensorKind::slot, name, slot.dtype, d.shape, d.n_dims, d.numel));
        continue;
      }
      const uint64_t numel = optimizers.slot_numel(s, static_cast<int32_t>(p));
      const auto length = static_cast<int64_t>(numel);
      tensors_.push_back(tensor_of(TensorKind::slot, name, slot.dtype, &length, 1, numel));
      if (slot.extent == DDH_SLOT_PER_BLOCK) tensors_.back().grid = 1;
    }
  }
  for (uint32_t p = 0; p < shown.size(); ++p) {
    if (shown[p] == 0) continue;
    const ddh_param_desc& d = *model.params[p];
    masters_[p] = tensors_.size();
    tensors_.push_back(tensor_of(TensorKind::slot, master_name(d.name), DDH_F32, d.shape, d.n_dims, d.numel));
  }
  const size_t first_of_strategy = tensors_.size();
  plain_.resize(first_of_strategy, -1);
  for (const StrategyTensor& given : strategy) add_strategy(model, given);
  files_ = {{"model.safetensors", "", 0}, {"optimizer.safetensors", "", 0}};
  place(0, 0, first_slot, weights_metadata(meaning_of_ids(model)));
  place(1, first_slot, first_of_strategy, weights_metadata(""));
  if (first_of_strategy == tensors_.size()) return;
  files_.push_back({"strategy.safetensors", "", 0});
  place(2, first_of_strategy, tensors_.size(), weights_metadata(""));
}

void CheckpointLayout::add_strategy(const ddh_model_desc& model, const StrategyTensor& given) {
  const auto key = [&](int32_t replica) {
    return std::tuple(given.kind, given.slot, given.param, given.name, replica);
  };
  const int64_t plain = given.kind == DDH_STATE_PARAM  ? static_cast<int64_t>(param(given.param))
                        : given.kind == DDH_STATE_SLOT ? slot(static_cast<uint32_t>(given.slot), given.param)
                                                       : -1;
  const bool is_own = given.kind == DDH_STATE_OWN;
  if (!is_own && plain < 0) return;  // no later phase needs it
  StoredTensor tensor;
  if (is_own) {
    const auto numel = static_cast<int64_t>(given.numel);
    const bool of_param = given.param >= 0;
    const ddh_param_desc* const d = of_param ? model.params[given.param] : nullptr;
    tensor = tensor_of(TensorKind::strategy, "own/" + given.name + (of_param ? "/" + std::string(d->name) : ""),
                       given.dtype, of_param ? d->shape : &numel, of_param ? d->n_dims : 1, given.numel);
  } else {
    tensor = tensors_[static_cast<size_t>(plain)];
    tensor.kind = TensorKind::strategy;
    tensor.tied_names.clear();
    strategy_[key(0)] = static_cast<size_t>(plain);
  }
  if (is_own && given.replicas == 0) {
    strategy_[key(0)] = tensors_.size();
    tensors_.push_back(tensor);
    plain_.push_back(-1);
  }
  const std::string name = tensor.name;
  for (int32_t replica = is_own ? 0 : 1; replica < given.replicas; ++replica) {
    strategy_[key(replica)] = tensors_.size();
    tensor.name = std::string(kReplicaPrefix) + std::to_string(replica) + "/" + name;
    tensors_.push_back(tensor);
    plain_.push_back(is_own ? -1 : plain);
  }
}

int64_t CheckpointLayout::of_entry(const ddh_state_entry& e) const {
  const bool is_own = e.kind == DDH_STATE_OWN;
  if (is_own || e.scope == DDH_SCOPE_RANK) {
    const auto at = strategy_.find({e.kind, e.kind == DDH_STATE_SLOT ? e.slot : 0, e.param, is_own ? e.name : "",
                                    e.scope == DDH_SCOPE_RANK ? e.replica_index : 0});
    return at == strategy_.end() ? -1 : static_cast<int64_t>(at->second);
  }
  return e.kind == DDH_STATE_PARAM ? static_cast<int64_t>(param(e.param))
                                   : slot(static_cast<uint32_t>(e.slot), e.param);
}

uint64_t CheckpointLayout::bytes() const {
  uint64_t sum = 0;
  for (const File& file : files_) sum += file.bytes;
  return sum;
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
