// SPDX-License-Identifier: Apache-2.0
//
// engine/services/optim/micro_metrics.hpp: sums and counts of a program's metrics, one row for each micro-batch, and their
// fold over the micro-batches of all ranks in global order: ((s_0 + s_1) + s_2) + ... So the folded values have the same bits
// for every division of the global batch into ranks and micro-batches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ddhost {

// Sums and counts of each metric over the micro-batches of all ranks.
struct FoldedMetrics {
  std::vector<double> sums, counts;
  double items = 0;  // tokens, images
};

// A value for metrics.jsonl, the progress line and schedules.
struct ReportedValue {
  std::string_view name;  // the model's
  double value;
};

// The rows of one rank, in the order of its micro-batches. A row is n sums, n counts, the items.
class MicroMetrics {
 public:
  // Sets all rows to zero; allocates only if it needs more memory than before.
  void begin(uint32_t n_metrics, uint64_t micro_batches) {
    n_metrics_ = n_metrics;
    micro_batches_ = micro_batches;
    rows_.assign(row_size() * micro_batches, 0.0);
  }
  [[nodiscard]] uint32_t n_metrics() const { return n_metrics_; }
  [[nodiscard]] uint64_t micro_batches() const { return micro_batches_; }
  [[nodiscard]] double* sums(uint64_t micro_batch) { return &rows_[micro_batch * row_size()]; }
  [[nodiscard]] double* counts(uint64_t micro_batch) { return sums(micro_batch) + n_metrics_; }
  [[nodiscard]] double& items(uint64_t micro_batch) { return sums(micro_batch)[uint64_t{2} * n_metrics_]; }
  // What ranks exchange: micro_batches rows.
  [[nodiscard]] std::span<const double> rows() const { return rows_; }

  // Of all micro-batches of this rank: the first metric is the loss.
  [[nodiscard]] double targets() const {
    double sum = 0;
    for (uint64_t m = 0; m < micro_batches_; ++m) sum += rows_[m * row_size() + n_metrics_];
    return sum;
  }
  [[nodiscard]] static uint64_t row_size(uint32_t n_metrics) { return 2 * uint64_t{n_metrics} + 1; }
  // Appends the sum of this rank's rows to `out`.
  void append_sum(std::vector<double>& out) const {
    const size_t begin = out.size();
    out.resize(begin + row_size());
    for (size_t i = 0; i < rows_.size(); ++i) out[begin + i % row_size()] += rows_[i];
  }
  // Folds one row of each of `world_size` ranks; that of rank r begins at first[r * stride].
  [[nodiscard]] static FoldedMetrics folded(const double* first, uint64_t stride, uint64_t world_size,
                                            uint32_t n_metrics) {
    MicroMetrics shape;
    shape.begin(n_metrics, 1);
    FoldedMetrics out;
    shape.fold(first, stride, world_size, out);
    return out;
  }

  // Folds the rows of `world_size` ranks of this shape; those of rank r begin at all[r * stride].
  void fold(const double* all, uint64_t stride, uint64_t world_size, FoldedMetrics& out) const {
    out.sums.assign(n_metrics_, 0.0);
    out.counts.assign(n_metrics_, 0.0);
    out.items = 0;
    for (uint64_t m = 0; m < micro_batches_; ++m) {
      for (uint64_t r = 0; r < world_size; ++r) {
        const double* row = all + r * stride + m * row_size();
        for (uint32_t i = 0; i < n_metrics_; ++i) {
          out.sums[i] += row[i];
          out.counts[i] += row[n_metrics_ + i];
        }
        out.items += row[uint64_t{2} * n_metrics_];
      }
    }
  }

 private:
  [[nodiscard]] uint64_t row_size() const { return row_size(n_metrics_); }

  uint32_t n_metrics_ = 0;
  uint64_t micro_batches_ = 0;
  std::vector<double> rows_;
};

}  // namespace ddhost
