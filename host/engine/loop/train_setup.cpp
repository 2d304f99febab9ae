// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/train_setup.hpp"

namespace ddhost {

bool stop_wanted(const TrainSetup& setup) {
  return setup.services.comm->any(setup.services.seat.record.stop_requested(), "stop");
}

EpochEnd epoch_end(const RunConfig& config) {
  if (!config.is_given("data.drop_last")) return EpochEnd::join;
  return config.get<bool>("data.drop_last") ? EpochEnd::drop : EpochEnd::shorten;
}

}  // namespace ddhost
