// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/check_world.hpp"

#include "ddh/sdk/plugin.hpp"

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

std::vector<Fingerprint> sample_counts(const ddh_model_desc& model) {
  std::vector<Fingerprint> counts;
  for (uint32_t g = 0; g < model.n_programs; ++g)
    counts.push_back(
        {ddh::str("number of samples of program '", model.programs[g]->name, "'"), model.programs[g]->n_samples});
  return counts;
}

}  // namespace ddhost
