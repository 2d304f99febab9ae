// SPDX-License-Identifier: Apache-2.0
#include "engine/record/monitors.hpp"

#include <spdlog/spdlog.h>
#include <exception>
#include <utility>

namespace ddhost {

Monitors::Monitors(RankServices& services, const std::vector<Plugin>& plugins, const std::string& run_dir,
                   int64_t resumed_after)
    : log_(services.log) {
  const std::string config = services.config.file_text();
  const ddh_monitor_args args{sizeof(ddh_monitor_args), services.seat.world_size(), run_dir.c_str(), config.c_str(),
                              resumed_after};
  for (const Plugin& plugin : plugins) {
    const std::string section = "monitor." + plugin.id();
    const PluginSeat& seat = seats_.emplace_back(services, "monitor:" + plugin.id(), section, plugin.desc);
    Instance instance(plugin, seat.host(), section, &services.seat.record);
    const auto& table = instance.require<ddh_monitor_api>(DDH_MONITOR_IFACE, DDH_MONITOR_API_MIN_SIZE);
    instance.call(PluginCall::kRunBegin, table.begin, &args);
    all_.push_back({&table, std::move(instance)});
  }
}

// A monitor that fails gets no further call.
template <class Function, class Argument>
void Monitors::call(One& one, PluginCall call, Function function, Argument argument) {
  one.is_open = false;
  one.instance.call(call, function, argument);
  one.is_open = call != PluginCall::kRunEnd;
}

// The others are told too: the run may go on from a checkpoint of this step, without the monitor that failed.
template <class Tell>
void Monitors::tell_all(Tell&& tell_one) {
  std::exception_ptr first;
  for (One& one : all_) {
    if (!one.is_open) continue;
    try {
      tell_one(one);
    } catch (const ddh::Error& error) {
      if (first == nullptr)
        first = std::current_exception();
      else
        log_->warn("{}; another monitor has failed before", error.what());
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

void Monitors::row(int32_t kind, int64_t step, std::string_view program, std::span<const RowValue> values) {
  const std::string program_name(program);
  std::vector<ddh_row_value> given;
  for (const RowValue& value : values) given.push_back({value.name.c_str(), value.value, value.is_flag ? 1U : 0U, 0});
  const ddh_row row{sizeof(ddh_row),
                    kind,
                    step,
                    program.empty() ? nullptr : program_name.c_str(),
                    given.data(),
                    static_cast<uint32_t>(given.size()),
                    0};
  tell_all([&](One& one) { call(one, PluginCall::kRow, one.table->row, &row); });
}

void Monitors::tell(One& one, const ddh_event& event) {
  if (one.table->event != nullptr) call(one, PluginCall::kEvent, one.table->event, &event);
}

void Monitors::event(int32_t kind, int64_t step, const std::string& text) {
  const ddh_event event{sizeof(ddh_event), kind, step, text.c_str()};
  tell_all([&](One& one) { tell(one, event); });
}

void Monitors::end(const std::string& summary) {
  for (One& one : all_) call(one, PluginCall::kRunEnd, one.table->end, summary.c_str());
}

std::vector<std::string> Monitors::failed(int64_t step, const std::string& sentence) {
  std::vector<std::string> failures;
  for (One& one : all_) {
    if (!std::exchange(one.is_open, false)) continue;
    try {
      tell(one, {sizeof(ddh_event), DDH_EVENT_FAILED, step, sentence.c_str()});
    } catch (const ddh::Error& error) {
      failures.emplace_back(error.what());
    }
    one.is_open = false;
  }
  return failures;
}

}  // namespace ddhost
