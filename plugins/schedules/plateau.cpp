// SPDX-License-Identifier: Apache-2.0
//
// plateau: torch's ReduceLROnPlateau. The rate starts at the optimizer's lr. It is multiplied by `factor` whenever more
// than `patience` losses in a row were no better than the best so far.
#include <algorithm>
#include <limits>

#include "ddh/sdk/schedule.hpp"
#include "options.hpp"

namespace {

class Plateau final : public ddh::Schedule {
 public:
  explicit Plateau(const ddh_create& create)
      : Schedule(create),
        factor_(options.f64("factor")),
        patience_(options.f64("patience")),
        threshold_(options.f64("threshold")),
        is_relative_(options.text("threshold_mode") == "rel"),
        higher_is_better_(options.text("mode") == "max"),
        cooldown_(options.f64("cooldown")),
        min_lr_(options.f64("min_lr")),
        eps_(options.f64("eps")) {}

  void attach(const ddh_schedule_args& args) override {
    lr_ = args.lr;
    if (factor_ >= 1)
      ddh::fail(DDH_INVALID_ARGUMENT, options.key("factor"), " = ", factor_,
                " would not lower the rate; give a factor below 1");
    if (min_lr_ > lr_)
      ddh::fail(DDH_INVALID_ARGUMENT, options.key("min_lr"), " = ", min_lr_, " is above the optimizer's lr = ", lr_,
                ", where the run begins; give a smaller one");
  }

  [[nodiscard]] double lr(int64_t /*step*/) const override { return lr_; }

  void observe(double loss) override {
    if (is_better(loss)) {
      has_best_ = 1;
      best_ = loss;
      n_bad_ = 0;
    } else {
      ++n_bad_;
    }
    if (cooldown_left_ > 0) {
      --cooldown_left_;
      n_bad_ = 0;
    }
    if (n_bad_ <= patience_) return;
    const double reduced = std::max(lr_ * factor_, min_lr_);
    if (lr_ - reduced > eps_) lr_ = reduced;
    cooldown_left_ = cooldown_;
    n_bad_ = 0;
  }

  [[nodiscard]] std::vector<Number> numbers() override {
    return {{"best", &best_},
            {"cooldown_left", &cooldown_left_},
            {"has_best", &has_best_},
            {"lr", &lr_},
            {"n_bad", &n_bad_}};
  }

 private:
  // A NaN is never better.
  [[nodiscard]] bool is_better(double loss) const {
    if (has_best_ == 0) {
      constexpr double kInf = std::numeric_limits<double>::infinity();
      return higher_is_better_ ? loss > -kInf : loss < kInf;
    }
    if (higher_is_better_) return loss > (is_relative_ ? best_ * (1 + threshold_) : best_ + threshold_);
    return loss < (is_relative_ ? best_ * (1 - threshold_) : best_ - threshold_);
  }

  const double factor_, patience_, threshold_;
  const bool is_relative_, higher_is_better_;
  const double cooldown_, min_lr_, eps_;
  double lr_ = 0, best_ = 0;
  double has_best_ = 0, n_bad_ = 0, cooldown_left_ = 0;  // a flag and counts, as numbers for a checkpoint
};

constexpr ddh::Option kOptions[] = {
    {"mode", "string", R"("min")", R"("enum": ["min", "max"])", "whether a lower or a higher loss is better"},
    {"factor", "number", "0.1", R"("exclusiveMinimum": 0, "maximum": 1)", "factor on the rate at a reduction, below 1"},
    {"patience", "integer", "10", ddh::kAtLeast0,
     "losses in a row that may be no better: of evaluations, or of steps if there are none"},
    {"threshold", "number", "1e-4", ddh::kAtLeast0, "by how much a loss must improve on the best"},
    {"threshold_mode", "string", R"("rel")", R"("enum": ["rel", "abs"])",
     "threshold as a fraction of the best loss, or as a difference"},
    {"cooldown", "integer", "0", ddh::kAtLeast0, "losses after a reduction that are not counted"},
    min_lr("0", "lowest rate"),
    {"eps", "number", "1e-8", ddh::kAtLeast0, "smaller reductions are ignored"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Plateau, schedule, "plateau", "0.1.0",
               "torch's ReduceLROnPlateau: a lower rate when the loss stops improving", ddh::kSchemaOf<kOptions>,
               kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_READS_LOSS);
