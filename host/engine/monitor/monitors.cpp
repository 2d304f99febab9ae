// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/monitors.hpp"

#include <utility>

namespace ddhost {

Monitors::Monitors(RankServices& services, const std::vector<Plugin>& plugins, const std::string& run_dir,
                   int64_t resumed_after) {
  const std::string config = services.config.file_text();
  const ddh_monitor_args args{sizeof(ddh_monitor_args), services.seat.world_size, run_dir.c_str(), config.c_str(),
                              resumed_after};
  for (const Plugin& plugin : plugins) {
    const std::string section = "monitor." + plugin.id();
    const PluginSeat& seat = seats_.emplace_back(services, "monitor:" + plugin.id(), section);
    Instance instance(plugin, seat.host(), section, &services.seat.record);
    const auto& table = instance.require<ddh_monitor_api>(DDH_MONITOR_IFACE, DDH_MONITOR_API_MIN_SIZE);
    instance.call(PluginCall::kRunBegin, table.begin, &args);
    all_.push_back({&table, std::move(instance)});
  }
}

void Monitors::row(int32_t kind, int64_t step, std::string_view program, std::span<const RowValue> values) const {
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
  for (const One& one : all_) one.instance.call(PluginCall::kRow, one.table->row, &row);
}

void Monitors::end(const std::string& summary) const {
  for (const One& one : all_) one.instance.call(PluginCall::kRunEnd, one.table->end, summary.c_str());
}

}  // namespace ddhost
