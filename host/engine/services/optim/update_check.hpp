// SPDX-License-Identifier: Apache-2.0
//
// engine/services/optim/update_check.hpp: run.check_plugins, for optimizers and their shards. Rules of the headers that a
// normal run trusts are checked at each update:
//   - elements outside of the ranges, gradients and unused slots keep their values; prepare never writes the master
//   - an element's result does not depend on its range: the call is repeated on copies that are cut differently and lie
//     elsewhere, and gives the same bits. So it depends neither on padding, nor on unused slots, nor on earlier calls
//   - a skipped step writes nothing
//   - padding behind a parameter is zero in all buffers that the strategy passes
// It takes about three updates more. The host must be able to access the buffers.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/services/optim/optimizers.hpp"

namespace ddhost {

struct UpdateBuffer;  // that a call gets; defined in the source

class UpdateCheck {
 public:
  // `model` outlives the object.
  explicit UpdateCheck(const ddh_model_desc& model) : model_(model) {}

  // Makes the call, and checks it. They throw an error that names plugin, call and parameter. Callable from several
  // threads.
  void update(const Optimizers::Instance& optimizer, const ddh_update_args& args) const;
  void prepare(const Optimizers::Instance& optimizer, const ddh_prepare_args& args) const;

 private:
  struct Call;
  using Sums = std::vector<uint64_t>;  // checksums of buffers

  [[nodiscard]] std::vector<UpdateBuffer> buffers_of(const Optimizers::Instance& o, const ddh_optim_shard& shard,
                                                     size_t range, const ddh_prepare_args* prepare) const;
  void require_zero_padding(const Optimizers::Instance& o, const ddh_optim_shard& shard) const;
  [[nodiscard]] Sums gap_sums(const Optimizers::Instance& o, const ddh_optim_shard& shard) const;
  // The sums of the results of the call on one piece, after checks on copies.
  [[nodiscard]] Sums repeat(const Call& call, const ddh_range& piece) const;
  void repeat_skipped(const Call& call, const ddh_range& piece) const;
  void require_same(const Call& call, const ddh_range& piece, const Sums& expected) const;

  const ddh_model_desc& model_;
};

}  // namespace ddhost
