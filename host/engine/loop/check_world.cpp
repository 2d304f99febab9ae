// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/check_world.hpp"

#include "ddh/sdk/plugin.hpp"
#include "engine/weights/manifest.hpp"
#include "engine/weights/meaning_of_ids.hpp"

namespace ddhost {

void check_same_everywhere(const std::vector<Fingerprint>& fingerprints, const Comm& comm) {
  std::vector<uint64_t> mine;
  for (const Fingerprint& fingerprint : fingerprints) mine.push_back(fingerprint.hash);
  const size_t n = mine.size(), n_ranks = static_cast<size_t>(comm.world_size());
  std::vector<uint64_t> all(n * n_ranks);
  comm.all_gather_bytes(mine.data(), all.data(), n * sizeof(uint64_t), "compare plugins and configuration");
  for (size_t r = 1; r < n_ranks; ++r) {
    for (size_t i = 0; i < n; ++i) {
      if (all[r * n + i] == all[i]) continue;
      ddh::fail(DDH_FAILED_PRECONDITION, "rank ", r, " has another ", fingerprints[i].of,
                " than rank 0; start every rank with the same files and options");
    }
  }
}

std::vector<Fingerprint> data_fingerprints(const ddh_model_desc& model) {
  const std::string meaning = meaning_of_ids(model);
  std::vector<Fingerprint> out = {{"meaning of the data's ids", sum_of(meaning.data(), meaning.size())}};
  for (uint32_t g = 0; g < model.n_programs; ++g)
    out.push_back(
        {ddh::str("number of samples of program '", model.programs[g]->name, "'"), model.programs[g]->n_samples});
  return out;
}

}  // namespace ddhost
