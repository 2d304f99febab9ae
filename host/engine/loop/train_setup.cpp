// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/train_setup.hpp"

namespace ddhost {

bool stop_wanted(const TrainSetup& setup) {
  return setup.services.comm->any(setup.services.seat.record.stop_requested(), "stop");
}

}  // namespace ddhost
