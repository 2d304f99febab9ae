// SPDX-License-Identifier: Apache-2.0
//
// run/buffers.hpp: a model's state without gradient (batch-norm statistics): rank 0's is the model's. It goes to all ranks
// when a step begins; a file of weights holds it.
#pragma once

#include <vector>

#include "services/interfaces.hpp"

namespace ddhost {

class Buffers {
 public:
  // `model` and `services` outlive this object. `syncs`: train.sync_buffers.
  Buffers(const ddh_model_desc& model, RankServices& services, bool syncs);
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers();

  // Rank 0's values of all buffers with DDH_SYNC_STEP on every rank. [collective]
  void sync();

 private:
  RankServices& services_;
  std::vector<const ddh_buffer_desc*> synced_;
  std::vector<char> message_;  // all of them in a row
};

}  // namespace ddhost
