// SPDX-License-Identifier: Apache-2.0
#include "engine/services/param_sums.hpp"

#include <algorithm>

namespace ddhost {

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

void ParamSums::clear() {
  agreed_ = false;
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
    for (uint64_t done = 0; done < range.numel; done += kPiece, ++turn) {
      const uint64_t numel = std::min(kPiece, range.numel - done);
      piece = {range.param, 0, range.param_offset + done, range.flat_offset + done, numel};
      call_(PluginCall::kPrepare, table_->prepare, optimizer_, &call);
      if (turn % replica.count != replica.index) continue;
      param.numel += static_cast<int64_t>(numel);
      for (uint32_t k = 0; k < sum_count_; ++k) param.sums[k].add_range(values_[k].data(), numel);
    }
  }
}

void ParamSums::agree(const Comm& comm) {
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
