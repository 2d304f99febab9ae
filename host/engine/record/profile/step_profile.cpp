// SPDX-License-Identifier: Apache-2.0
#include "engine/record/profile/step_profile.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr std::string_view kAutomatic = "auto";
constexpr const char* kDataThread = "data ";  // engine/samples/loader.cpp names them
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

StepProfile::StepProfile(RankServices& services, const std::filesystem::path& run_dir, int64_t done, int64_t last)
    : services_(services),
      run_dir_(run_dir),
      steps_(profiled_steps(services.config.get<std::string>("profile.steps"), done, last)) {
  if (!is_on()) {
    const auto text = services.config.get<std::string>("profile.steps");
    if (!text.empty() && services.seat.rank == 0)
      services.log->info("profile.steps={} is before step {}, with which the run goes on, so no step is measured", text,
                         done + 1);
    return;
  }
  require_new_trace(trace_path(steps_.last));
}

std::filesystem::path StepProfile::trace_path(int64_t last) const {
  return run_dir_ / ddh::str("trace-steps-", steps_.first, "-", last, "-rank-", services_.seat.rank, ".json");
}

void StepProfile::step_begin(int64_t step) {
  if (!steps_.has(step)) return;
  const Device& device = *services_.device;
  services_.clock.profile_begin(device.is_host_memory() ? std::function<void()>()
                                                        : [&device] { settle_device(device); });
}

void StepProfile::step_end(int64_t step, uint64_t micro_batch) {
  if (!steps_.has(step)) return;
  Profile taken = services_.clock.profile_end();
  ++count_;
  for (size_t kind = 0; kind < kSpanKinds; ++kind) kinds_ms_[kind] += taken.kinds_ms[kind];
  for (size_t p = 0; p < kParts; ++p) {
    const auto part = static_cast<StepPart>(p);
    parts_ms_[part] += taken.parts_ms[part];
    faults_[part] += taken.faults[part];
  }
  for (const auto& [rank, ms] : taken.waited_ms) waited_ms_[rank] += ms;
  for (const auto& [name, more] : taken.collectives) {
    Collective& all = collectives_[name];
    all.part = more.part;
    all.calls_ms.insert(all.calls_ms.end(), more.calls_ms.begin(), more.calls_ms.end());
  }
  for (const auto& [call, spent] : taken.units) units_[{call, micro_batch}] += spent;
  for (const auto& [name, spent] : taken.operations) operations_[name] += spent;
  trace(step, std::move(taken));
}

// Threads of a profile are numbered as they come; in a trace they are known by their names.
void StepProfile::trace(int64_t step, Profile&& taken) {
  const bool fits =
      traced_.size() + 1 == static_cast<size_t>(count_) && traced_spans_ + taken.spans.size() <= kMostTraced;
  if (!fits) return;
  if (threads_.empty()) threads_.emplace_back("main");
  std::vector<uint32_t> places;
  bool has_main = false;
  for (const std::string& its : taken.threads) {
    const bool is_main = !has_main && !its.starts_with(kDataThread);  // it begins the step before a plugin's thread can
    has_main = has_main || is_main;
    const std::string name = is_main ? threads_.front() : its;
    const auto known = std::find(threads_.begin(), threads_.end(), name);
    places.push_back(static_cast<uint32_t>(known - threads_.begin()));
    if (known == threads_.end()) threads_.push_back(name);
  }
  for (TraceSpan& span : taken.spans) span.thread = places[span.thread];
  traced_spans_ += taken.spans.size();
  traced_.push_back({step, taken.begin_ns, taken.end_ns, std::move(taken.spans), std::move(taken.texts)});
}

}  // namespace ddhost
