// SPDX-License-Identifier: Apache-2.0
#include "engine/checks/replica_checks.hpp"

#include <bit>

#include "engine/checks/replicas.hpp"

namespace ddhost {
namespace {

constexpr const char* kOption = "run.check_replicas";

}  // namespace

ReplicaChecks::ReplicaChecks(const RankServices& services, const StateSource& source)
    : services_(services),
      source_(source),
      is_on_(services.seat.world_size > 1 &&
             (!services.config.is_given(kOption) || services.config.get<int64_t>(kOption) > 0)),
      every_(services.config.is_given(kOption) ? services.config.get<int64_t>(kOption) : 0) {}

void ReplicaChecks::step_done(int64_t step, bool ends) {
  ++steps_;
  if (ends || is_due(step)) require_equal(step);
}

bool ReplicaChecks::is_due(int64_t step) const {
  return every_ > 0 ? step % every_ == 0 : std::has_single_bit(static_cast<uint64_t>(steps_));
}

void ReplicaChecks::require_equal(int64_t step) {
  if (!is_on_ || step == checked_) return;
  checked_ = step;
  services_.device->synchronize(nullptr);  // the last updates
  const CheckpointLayout layout(source_.model, services_.step->optimizers());
  require_equal_replicas(source_, layout, *services_.comm, *services_.staging, step);
}

}  // namespace ddhost
