// SPDX-License-Identifier: Apache-2.0
//
// kgat/ranking.hpp: how well a ranking of all items that a user did not train on finds its test items. Of equal scores the
// item with the smaller id comes first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kgat {

// For each k, in this order. ndcg: the ideal ranking begins with min(k, test items) hits, as in the port of KGAT to PyTorch.
// ndcg_topk: the ideal begins with the hits of the retrieved top k. The original of KGAT takes those of the top max(ks), so it
// has the same value where k is the last of ks, and an equal or smaller one at each other k.
// ndcg_candidates: the ideal begins with the test items that can be retrieved; where no test item was trained on that is ndcg.
inline constexpr const char* kRankingMetrics[] = {"recall", "precision", "hit", "ndcg", "ndcg_topk", "ndcg_candidates"};
inline constexpr size_t kMetricsOfK = std::size(kRankingMetrics);

// "recall@20", ...
std::vector<std::string> ranking_names(const std::vector<int64_t>& ks);

// Of one user, into `values` (ks x kMetricsOfK). `train`, `test`: its items, ascending; `test` is not empty. A score that
// is NaN makes all values NaN.
void rank(const float* scores, int64_t n_items, const std::vector<int32_t>& train, const std::vector<int32_t>& test,
          const std::vector<int64_t>& ks, double* values);

}  // namespace kgat
