// SPDX-License-Identifier: Apache-2.0
//
// engine/services/optim/param_sums.hpp: sums of squares over whole parameters for optimizers that need them
// (ddh/kind/optimizer.h), exact, so they do not depend on sharding or world size.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ddh/ddh.h"
#include "engine/numerics/exact_norm.hpp"
#include "engine/services/comm/comm.hpp"
#include "engine/services/optim/device_norm.hpp"

namespace ddhost {

// The index of this rank among those that hold the same shard.
struct Replica {
  int32_t index = 0, count = 1;
};

class ParamSums {
 public:
  ParamSums() = default;
  // `needs`: DDH_NEEDS_* of each parameter. The others outlive this object.
  ParamSums(const ddh_model_desc& model, ddh_inst* optimizer, const ddh_optimizer_api& table,
            const std::vector<int32_t>& needs, const PluginCaller& caller = PluginCaller("the optimizer"));

  // The optimizer's prepare queues kernels: its values stay in memory of the device, which sums their squares. Both
  // outlive this object.
  void use_device(Device& device, Memory& memory);
  [[nodiscard]] bool needed() const { return !params_.empty(); }
  // Makes and checks each call of the optimizer's prepare, instead of the plain call.
  void check_with(std::function<void(const ddh_prepare_args&)> prepare) { checked_prepare_ = std::move(prepare); }
  void clear();
  // Calls the optimizer's prepare on one shard. Each square counts on one of the replicas.
  void prepare(const ddh_update_args& args, Replica replica);
  // Sums over the ranks. Fails if a parameter was not prepared completely.
  void agree(const Comm& comm);
  // Whether this parameter's sums of the step are complete.
  [[nodiscard]] bool ready(int32_t param) const;
  // sum_count for each parameter of the model; nullptr: none are needed.
  [[nodiscard]] const double* totals() const { return totals_.empty() ? nullptr : totals_.data(); }

 private:
  static constexpr uint64_t kPiece = 4096;  // elements per call: the values stay in the second-level cache
  static constexpr uint64_t kDevicePiece = uint64_t{1} << 20;  // at most, of kernels

  // The values of one call in memory of the device, which streams use in turn, and the sums so far.
  struct OnDevice;

  void count_squares(int32_t place, uint64_t numel, ddh_stream* stream);

  // A parameter that needs sums.
  struct Param {
    int32_t index;
    int64_t numel = 0;           // elements counted so far: on this rank; after agree, on all ranks
    std::vector<ExactSum> sums;  // sum_count of them
  };

  const ddh_model_desc* model_ = nullptr;
  ddh_inst* optimizer_ = nullptr;
  const ddh_optimizer_api* table_ = nullptr;
  PluginCaller call_;
  std::function<void(const ddh_prepare_args&)> checked_prepare_;  // empty in a normal run
  uint32_t sum_count_ = 0;
  bool agreed_ = false;
  std::vector<Param> params_;
  std::vector<int32_t> place_;  // per parameter of the model: index in params_, or -1
  std::vector<double> totals_;
  std::vector<std::vector<float>> values_;  // sum_count of them
  std::vector<float*> value_pointers_;
  uint64_t piece_ = kPiece;
  std::shared_ptr<OnDevice> on_device_;  // null: the optimizer computes on the host
};

}  // namespace ddhost
