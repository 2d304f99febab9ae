// SPDX-License-Identifier: Apache-2.0
//
// engine/monitor/monitors.hpp: the monitor plugins of a run, each with an instance on rank 0. If one of them can't
// write, the run ends with its message.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddh/kind/monitor.h"
#include "engine/calls/instance.hpp"
#include "engine/services/interfaces.hpp"

namespace ddhost {

// One value of a row.
struct RowValue {
  std::string name;
  double value = 0;
  bool is_flag = false;
};

class Monitors {
 public:
  // Makes the instances and lets them open what they write to.
  Monitors(RankServices& services, const std::vector<Plugin>& plugins, const std::string& run_dir,
           int64_t resumed_after);
  Monitors(const Monitors&) = delete;
  Monitors& operator=(const Monitors&) = delete;

  // `kind`: DDH_ROW_*. `program`: "" if there is only one.
  void row(int32_t kind, int64_t step, std::string_view program, std::span<const RowValue> values) const;
  // `summary`: a JSON object. Called only if the run did not fail.
  void end(const std::string& summary) const;

 private:
  struct One {
    const ddh_monitor_api* table;
    Instance instance;
  };
  std::deque<PluginSeat> seats_;  // elements stay in place
  std::vector<One> all_;
};

}  // namespace ddhost
