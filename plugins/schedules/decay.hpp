// SPDX-License-Identifier: Apache-2.0
//
// Schedules with a linear warm-up, followed by the schedule's own part. After `done` steps the warm-up has the rate
// lr (done + 1) / (warmup_steps + 1), as in nanoGPT, or lr done / warmup_steps, as in transformers. The rate depends only on
// the step number.
#pragma once

#include "ddh/sdk/schedule.hpp"
#include "options.hpp"

class WithWarmup : public ddh::Schedule {
 public:
  explicit WithWarmup(const ddh_create& create) : Schedule(create), from_zero_(options.flag("warmup_from_zero")) {}

  void attach(const ddh_schedule_args& args) override {
    lr_ = args.lr;
    warmup_ = warmup_steps(options, args.steps);
  }

  [[nodiscard]] double lr(int64_t step) const final {
    const auto done = static_cast<double>(step - 1);
    if (done >= warmup_) return after_warmup(done);
    return from_zero_ ? lr_ * done / warmup_ : lr_ * (done + 1) / (warmup_ + 1);
  }

 protected:
  // The rate after `done` steps, warm-up included.
  [[nodiscard]] virtual double after_warmup(double done) const = 0;

  double warmup_ = 0, lr_ = 0;

 private:
  const bool from_zero_;
};

// Falls from lr to min_lr_ratio lr at decay_steps, and stays there.
class Decay : public WithWarmup {
 public:
  using WithWarmup::WithWarmup;

  void attach(const ddh_schedule_args& args) override {
    WithWarmup::attach(args);
    min_lr_ = lr_ * options.f64("min_lr_ratio");
    const auto given = options.f64_if_given("decay_steps");
    end_ = given.value_or(static_cast<double>(args.steps));
    // If decay_steps defaults to the length of the run, a short run may end during its warm-up.
    if (given && end_ < warmup_)
      ddh::fail(DDH_INVALID_ARGUMENT, options.key("decay_steps"), " = ", end_, " ends the decay before the warm-up (",
                options.key("warmup_steps"), " = ", warmup_, "); give more decay_steps or fewer warmup_steps");
    begin_ = std::max(warmup_, begin_of_decay(end_, given.has_value()));
  }

 protected:
  // Steps before the decay; at least the warm-up. `end_is_given`: by the user.
  [[nodiscard]] virtual double begin_of_decay(double /*end*/, bool /*end_is_given*/) const { return warmup_; }
  // From 1 at progress 0 to 0 at progress 1.
  [[nodiscard]] virtual double share_left(double progress) const = 0;

 private:
  [[nodiscard]] double after_warmup(double done) const final {
    if (done < begin_) return lr_;
    if (done > end_) return min_lr_;
    const double progress = end_ > begin_ ? (done - begin_) / (end_ - begin_) : 1.0;
    return min_lr_ + share_left(progress) * (lr_ - min_lr_);
  }

  double min_lr_ = 0, begin_ = 0, end_ = 0;
};
