// SPDX-License-Identifier: Apache-2.0
#include "engine/record/loss_rise.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/progress_text.hpp"

namespace ddhost {
namespace {

constexpr size_t kNew = 5, kOld = 100;            // losses that are compared
constexpr size_t kFewest = 3, kEnough = 50;       // old ones; their noise is known from kEnough on
constexpr double kOfNoise = 3, kOfLargest = 1.2;  // times the noise
constexpr double kOfLoss = 0.2, kOfLossAtFirst = 0.5, kOfGain = 0.1;

// The loss that `share` of them do not exceed. On the stack, because a step allocates nothing.
double quantile(std::span<const double> losses, double share) {
  std::array<double, kNew + kOld> copy{};
  double* const end = std::copy(losses.begin(), losses.end(), copy.data());
  double* const place = copy.data() + static_cast<size_t>(std::ceil(share * static_cast<double>(losses.size()))) - 1;
  std::nth_element(copy.data(), place, end);
  return *place;
}
double median(std::span<const double> losses) { return quantile(losses, 0.5); }

}  // namespace

std::optional<LossRise::Jump> LossRise::add(double loss) {
  if (!std::isfinite(loss)) return std::nullopt;  // the gradient's sentence names it
  if (!first_) first_ = loss;
  if (last_.size() == kNew + kOld) last_.erase(last_.begin());
  last_.push_back(loss);
  if (last_.size() < kNew + kFewest) return std::nullopt;
  const std::span<const double> all(last_), old = all.first(all.size() - kNew), now = all.last(kNew);
  const bool knows_noise = old.size() >= kEnough;
  if (!knows_noise && has_jumped_) return std::nullopt;
  const double from = median(old), to = median(now), largest = quantile(old, 1);
  // At the start nearly all of them must be above all before.
  if (!knows_noise && quantile(now, 0.4) <= largest) return std::nullopt;
  const double noise =
      knows_noise ? std::max(kOfNoise * (quantile(old, 0.95) - from), kOfLargest * (largest - from)) : 0;
  const double of_loss = (knows_noise ? kOfLoss : kOfLossAtFirst) * std::abs(from);
  if (!(to - from > std::max({noise, of_loss, kOfGain * (*first_ - from)}))) return std::nullopt;
  has_jumped_ = true;
  last_.clear();
  return Jump{from, to, static_cast<int64_t>(kNew)};
}

std::string jump_sentence(const LossRise::Jump& jump, const RunConfig& config) {
  const auto options = nlohmann::json::parse(config.file_text(), nullptr, /*allow_exceptions=*/true,
                                             /*ignore_comments=*/true);
  const bool warms_up = options.at("schedule").contains("warmup_steps");
  const double clip = config.get<double>("train.clip_norm");
  return config.in_words_of_user(
      ddh::str("loss rose from ", number_as("%.4g", jump.from), " to ", number_as("%.4g", jump.to), " within ",
               jump.steps, " steps; lower optimizer.lr", warms_up ? ", lengthen schedule.warmup_steps" : "", " or ",
               clip > 0 ? "lower train.clip_norm (now " + number_as("%g", clip) + ")" : "set train.clip_norm"));
}

}  // namespace ddhost
