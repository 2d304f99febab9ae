// SPDX-License-Identifier: Apache-2.0
#include "engine/record/step_profile.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr std::string_view kAutomatic = "auto";
// The first steps touch memory for the first time, and fill caches.
constexpr int64_t kWarmUp = 2, kAutomaticSteps = 5;

// A whole number at the beginning of `text`, which loses it. 0: there is none.
int64_t taken_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 1 || text.front() == '-') return 0;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

// The steps as they are given.
ProfiledSteps given_steps(const std::string& given) {
  std::string_view text = given;
  ProfiledSteps out;
  out.first = text.empty() ? 0 : taken_number(text);
  out.last = out.first;
  if (text.starts_with('-')) {
    text.remove_prefix(1);
    out.last = text.empty() ? 0 : taken_number(text);
  }
  if (out.first > 0 && out.last >= out.first && text.empty()) return out;
  ddh::fail(DDH_INVALID_ARGUMENT, "profile.steps='", plain_text(given, kShownValue),
            "' names no steps; give the first and the last as 20-25, one step as 20, or auto");
}

void settle_device(const Device& device) {
  ddh::ErrorBuffer ignored;  // a later wait of the run has the same error
  device.streams().synchronize(device.context(), nullptr, ignored.get());
}

}  // namespace

void require_profile_steps(const std::string& text) {
  if (!text.empty() && text != kAutomatic) static_cast<void>(given_steps(text));
}

ProfiledSteps profiled_steps(const std::string& text, int64_t done, int64_t last) {
  if (text.empty()) return {};
  if (text == kAutomatic) {
    const int64_t first = std::max(done + 1, std::min(done + 1 + kWarmUp, last + 1 - kAutomaticSteps));
    return {first, std::min(last, first + kAutomaticSteps - 1)};
  }
  const ProfiledSteps steps = given_steps(text);
  if (steps.last <= done) return {};  // a resumed run has its configuration from the run that measured them
  if (steps.last <= last) return {std::max(steps.first, done + 1), steps.last};
  ddh::fail(DDH_OUT_OF_RANGE, "profile.steps=", text, " is not within the run, which trains steps ", done + 1, " to ",
            last, "; give steps of these");
}

void StepProfile::step_begin(int64_t step) {
  if (!steps_.has(step)) return;
  const Device& device = *services_.device;
  services_.clock.profile_begin(device.is_host_memory() ? std::function<void()>()
                                                        : [&device] { settle_device(device); });
}

void StepProfile::step_end(int64_t step, uint64_t micro_batch) {
  if (!steps_.has(step)) return;
  const Profile taken = services_.clock.profile_end();
  ++count_;
  for (size_t kind = 0; kind < kSpanKinds; ++kind) parts_ms_[kind] += taken.parts_ms[kind];
  for (const auto& [call, spent] : taken.units) units_[{call, micro_batch}] += spent;
  for (const auto& [name, spent] : taken.operations) operations_[name] += spent;
}

}  // namespace ddhost
