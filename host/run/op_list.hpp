// SPDX-License-Identifier: Apache-2.0
//
// run/op_list.hpp: a program as the host executes it: units forward, then in reverse for the backward, with a second
// forward before it where activations are not kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ddh/ddh.h"

namespace ddhost {

struct Op {
  int32_t unit;
  int32_t position;       // in the program's unit list
  int32_t phase;          // DDH_PHASE_*
  bool is_last_backward;  // of the unit in a micro-batch: its own gradients are complete after it
  bool is_recomputed;     // a forward that runs again before its backward
};

class OpList {
 public:
  // The ops of `micro_batches` micro-batches one after the other. `recompute_every`: as in ddh_attach_args.
  OpList(const ddh_model_desc& model, int32_t program, uint64_t micro_batches, uint32_t recompute_every = 0) {
    const ddh_program_desc& p = *model.programs[program];
    const bool backward = p.kind != DDH_PROGRAM_EVAL;
    const auto n = static_cast<int32_t>(p.n_units);
    const auto occurs_before = [&p](int32_t at) {
      return std::find(p.units, p.units + at, p.units[at]) != p.units + at;
    };
    const auto recomputed = [&](int32_t at) {
      return backward && recompute_every > 0 && (static_cast<uint32_t>(at) + 1) % recompute_every == 0;
    };
    for (int32_t i = 0; i < n; ++i)
      ops_.push_back({p.units[i], i, backward ? DDH_PHASE_FORWARD : DDH_PHASE_EVAL, false, recomputed(i)});
    if (backward) {
      for (int32_t i = n; i-- > 0;) {
        if (recomputed(i)) ops_.push_back({p.units[i], i, DDH_PHASE_RECOMPUTE, false, false});
        ops_.push_back({p.units[i], i, DDH_PHASE_BACKWARD, !occurs_before(i), false});
      }
    }
    for (uint64_t m = 0; m < micro_batches; ++m) {
      for (const Op& op : ops_) units_.push_back(op.unit);
    }
  }

  // Of one micro-batch.
  [[nodiscard]] const std::vector<Op>& ops() const { return ops_; }

  // One use of a unit, with all units that come after it in the step.
  [[nodiscard]] ddh_unit_use use(int32_t program, uint64_t micro_batch, size_t op_index) const {
    const Op& op = ops_[op_index];
    const size_t after = micro_batch * ops_.size() + op_index + 1;
    ddh_unit_use use{};
    use.struct_size = sizeof use;
    use.program = program;
    use.unit = op.unit;
    use.position = op.position;
    use.micro_batch = static_cast<int32_t>(micro_batch);
    use.phase = op.phase;
    use.next = units_.data() + after;
    use.n_next = static_cast<uint32_t>(units_.size() - after);
    return use;
  }

 private:
  std::vector<Op> ops_;
  std::vector<int32_t> units_;  // of all micro-batches, in order of use
};

}  // namespace ddhost
