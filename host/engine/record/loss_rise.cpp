// SPDX-License-Identifier: Apache-2.0
#include "engine/record/loss_rise.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/progress_text.hpp"

namespace ddhost {
namespace {

constexpr size_t kNew = 5, kOld = 100;            // losses that are compared
constexpr size_t kFewest = 3, kEnough = 50;       // old ones; their noise is known from kEnough on
constexpr double kOfNoise = 3, kOfLargest = 1.2;  // times the noise
constexpr double kOfLoss = 0.2, kOfLossAtFirst = 0.5, kOfGain = 0.1;

// The loss that `share` of them do not exceed.
double quantile(std::vector<double> losses, double share) {
  const auto place = static_cast<size_t>(std::ceil(share * static_cast<double>(losses.size()))) - 1;
  std::nth_element(losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(place), losses.end());
  return losses[place];
}
double median(const std::vector<double>& losses) { return quantile(losses, 0.5); }

}  // namespace

std::optional<LossRise::Jump> LossRise::add(double loss) {
  if (!std::isfinite(loss)) return std::nullopt;  // the gradient's sentence names it
  if (!first_) first_ = loss;
  last_.push_back(loss);
  if (last_.size() > kNew + kOld) last_.pop_front();
  if (last_.size() < kNew + kFewest) return std::nullopt;
  const auto middle = last_.end() - static_cast<std::ptrdiff_t>(kNew);
  const std::vector<double> old(last_.begin(), middle), now(middle, last_.end());
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
