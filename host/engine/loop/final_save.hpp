// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/final_save.hpp: the weights at the end of the run, for train.save_final.
#pragma once

#include <string>

#include "engine/services/interfaces.hpp"
#include "engine/weights/final_weights.hpp"
#include "engine/weights/state_entries.hpp"

namespace ddhost {

// Reserves the space of the file before the training, so that a full disk is an error at once. [collective]
void reserve_final_weights(const FinalWeights& file, const ddh_model_desc& model, const Comm& comm);

struct FinalSave {
  std::string path;     // where the weights are; known on rank 0
  std::string problem;  // why they are not in train.save_final; empty: they are. The same on every rank
};

// Writes and names the file. If its disk fails, the run's folder gets the weights. `nonfinite_reason` is as for
// export_params. [collective]
[[nodiscard]] FinalSave save_final_weights(const FinalWeights& file, const StateSource& source,
                                           const RankServices& services, const std::string& nonfinite_reason);

}  // namespace ddhost
