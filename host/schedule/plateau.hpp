// SPDX-License-Identifier: Apache-2.0
//
// schedule/plateau.hpp: torch's ReduceLROnPlateau: optimizer.lr, times `factor` whenever more than `patience` losses in a
// row were no better than the best so far. It looks at evaluations, or, in a run without them, at the steps that were not
// skipped.
#pragma once

#include "schedule/options.hpp"

namespace ddhost {

struct PlateauSettings {
  double factor = 0.1;
  double patience = 10;
  double threshold = 1e-4;
  bool relative = true;  // the threshold is a part of the best loss
  bool rising = false;   // a higher loss is better
  double cooldown = 0;   // losses after a reduction that are not counted
  double min_lr = 0;
  double eps = 1e-8;  // smallest reduction
  bool evaluations = false;
};

class Plateau final : public Schedule {
 public:
  Plateau(double lr, const PlateauSettings& settings) : settings_(settings), lr_(lr) {}

  [[nodiscard]] double lr(int64_t /*step*/) const override { return lr_; }
  void step_done(const StepReport& report) override;
  void evaluated(double loss) override;
  [[nodiscard]] bool reads_losses() const override { return true; }
  [[nodiscard]] ScheduleState state() const override;
  void restore(const ScheduleState& state) override;

 private:
  [[nodiscard]] bool is_better(double loss) const;
  void see(double loss);

  const PlateauSettings settings_;
  double lr_;
  bool has_best_ = false;
  double best_ = 0;
  double n_bad_ = 0;
  double cooldown_left_ = 0;
};

std::unique_ptr<Schedule> make_plateau(const ScheduleOptions& options);

}  // namespace ddhost
