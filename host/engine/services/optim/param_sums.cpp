// SPDX-License-Identifier: Apache-2.0
#include "engine/services/optim/param_sums.hpp"

#include <algorithm>

namespace ddhost {

struct ParamSums::OnDevice {
  OnDevice(Device& device, Memory& owner) : memory(owner), squares(device, owner), used(device) {}
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    for (float* values : blocks) memory.release(values);
  }
  Memory& memory;
  DeviceNorm squares;
  StreamMark used;  // the last use of the values
  std::vector<float*> blocks;
};

ParamSums::ParamSums(const ddh_model_desc& model, ddh_inst* optimizer, const ddh_optimizer_api& table,
                     const std::vector<int32_t>& needs, const PluginCaller& caller)
    : model_(&model), optimizer_(optimizer), table_(&table), call_(caller), place_(needs.size(), -1) {
  if (DDH_CAN(table_, ddh_optimizer_api, sum_count)) sum_count_ = table.sum_count(optimizer);
  for (size_t p = 0; p < needs.size(); ++p) {
    if (needs[p] != DDH_NEEDS_PARAM_NORM) continue;
    if (sum_count_ == 0 || !DDH_CAN(table_, ddh_optimizer_api, prepare))
      ddh::fail(DDH_FAILED_PRECONDITION, "the optimizer says that it needs the norm of parameter '",
                model.params[p]->name, "', but offers no sum_count and prepare; fix the plugin");
    place_[p] = static_cast<int32_t>(params_.size());
    params_.push_back({static_cast<int32_t>(p), 0, std::vector<ExactSum>(sum_count_)});
  }
  if (params_.empty()) return;
  totals_.assign(needs.size() * sum_count_, 0.0);
  values_.assign(sum_count_, std::vector<float>(kPiece));
  for (std::vector<float>& values : values_) value_pointers_.push_back(values.data());
}

void ParamSums::use_device(Device& device, Memory& memory) {
  if (params_.empty()) return;
  if (!DeviceNorm::is_possible(device))
    ddh::fail(DDH_UNIMPLEMENTED, "the optimizer needs norms of parameters, but device '", device.name(),
              "' has no exact_squares to sum squares in its memory; choose another optimizer, or another --device");
  uint64_t largest = 0;
  for (const Param& param : params_)
    largest = std::max<uint64_t>(largest, model_->params[static_cast<size_t>(param.index)]->numel);
  piece_ = std::min(kDevicePiece, (largest + kNormBlock - 1) / kNormBlock * kNormBlock);
  on_device_ = std::make_shared<OnDevice>(device, memory);
  values_.clear();
  for (float*& values : value_pointers_) {
    values = static_cast<float*>(
        memory.allocate(DDH_TAG_COMM, piece_ * sizeof(float), "values of norms of parameters", DDH_MEM_DEVICE));
    on_device_->blocks.push_back(values);
  }
}

void ParamSums::clear() {
  agreed_ = false;
  if (on_device_ != nullptr) on_device_->squares.clear();
  for (Param& param : params_) {
    param.numel = 0;
    for (ExactSum& sum : param.sums) sum.clear();
  }
}

void ParamSums::prepare(const ddh_update_args& args, Replica replica) {
  if (agreed_)
    ddh::fail(DDH_FAILED_PRECONDITION, "the strategy called prepare after sum_norms in step ", args.block->step);
  ddh_optim_shard shard = *args.shard;
  ddh_range piece{};
  shard.ranges = &piece;
  shard.n_ranges = 1;
  ddh_update_args piece_args = args;
  piece_args.shard = &shard;
  const ddh_prepare_args call{sizeof(ddh_prepare_args), sum_count_, &piece_args, value_pointers_.data()};
  int64_t turn = 0;  // replicas take pieces in turn
  for (uint32_t r = 0; r < args.shard->n_ranges; ++r) {
    const ddh_range& range = args.shard->ranges[r];
    const int32_t place = place_.at(static_cast<size_t>(range.param));
    if (place < 0) continue;
    Param& param = params_[static_cast<size_t>(place)];
    for (uint64_t done = 0; done < range.numel; done += piece_, ++turn) {
      const uint64_t numel = std::min(piece_, range.numel - done);
      piece = {range.param, 0, range.param_offset + done, range.flat_offset + done, numel};
      if (on_device_ != nullptr) on_device_->used.order(args.stream);
      if (checked_prepare_)
        checked_prepare_(call);
      else
        call_(PluginCall::kPrepare, table_->prepare, optimizer_, &call);
      if (turn % replica.count == replica.index) {
        param.numel += static_cast<int64_t>(numel);
        count_squares(place, numel, args.stream);
      }
      if (on_device_ != nullptr) on_device_->used.set(args.stream);
    }
  }
}

void ParamSums::count_squares(int32_t place, uint64_t numel, ddh_stream* stream) {
  for (uint32_t k = 0; k < sum_count_; ++k) {
    if (on_device_ == nullptr) {
      params_[static_cast<size_t>(place)].sums[k].add_range(values_[k].data(), numel);
    } else {  // `param` numbers the pair of a parameter and a sum
      const ddh_range all{place * static_cast<int32_t>(sum_count_) + static_cast<int32_t>(k), 0, 0, 0, numel};
      on_device_->squares.add(value_pointers_[k], 0, numel, {&all, 1}, stream);
    }
  }
}

void ParamSums::agree(const Comm& comm) {
  if (on_device_ != nullptr)
    on_device_->squares.finish([&](const uint64_t* words, int32_t place, uint64_t) {
      const std::vector<int64_t> sum(words, words + ExactSum::kWords);
      params_[static_cast<size_t>(place) / sum_count_].sums[static_cast<size_t>(place) % sum_count_].merge(sum.data());
    });
  const size_t stride = 1 + sum_count_ * size_t{ExactSum::kWords};
  std::vector<int64_t> words;
  words.reserve(params_.size() * stride);
  for (Param& param : params_) {
    words.push_back(param.numel);
    for (ExactSum& sum : param.sums) {
      const ExactSum::Words mine = sum.words();
      words.insert(words.end(), mine.begin(), mine.end());
    }
  }
  comm.all_reduce_i64(words.data(), words.size(), "parameter norms");
  const int64_t* at = words.data();
  for (Param& param : params_) {
    param.numel = *at++;
    const auto p = static_cast<size_t>(param.index);
    const auto whole = static_cast<int64_t>(model_->params[p]->numel);
    if (param.numel != 0 && param.numel != whole)
      ddh::fail(DDH_FAILED_PRECONDITION, "the strategy prepared ", param.numel, " of ", whole,
                " elements of parameter '", model_->params[p]->name,
                "' over all ranks; each must be counted once, for its norm");
    for (uint32_t k = 0; k < sum_count_; ++k, at += ExactSum::kWords) {
      param.sums[k].clear();
      param.sums[k].merge(at);
      totals_[p * sum_count_ + k] = param.sums[k].total();
    }
  }
  agreed_ = true;
}

bool ParamSums::ready(int32_t param) const {
  const int32_t place = place_.at(static_cast<size_t>(param));
  return agreed_ && place >= 0 && params_[static_cast<size_t>(place)].numel > 0;
}

}  // namespace ddhost
