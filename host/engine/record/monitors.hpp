// SPDX-License-Identifier: Apache-2.0
//
// engine/record/monitors.hpp: the monitor plugins of a run, on rank 0.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddh/kind/monitor.h"
#include "engine/calls/instance.hpp"
#include "engine/services/tables/interfaces.hpp"

namespace ddhost {

// One value of a row.
struct RowValue {
  std::string name;
  double value = 0;
  bool is_flag = false;
};

// Each plugin has an instance on rank 0. If one of them can't write, the run ends with its message.
class Monitors {
 public:
  // Makes the instances and lets them open what they write to.
  Monitors(RankServices& services, const std::vector<Plugin>& plugins, const std::string& run_dir,
           int64_t resumed_after);
  Monitors(const Monitors&) = delete;
  Monitors& operator=(const Monitors&) = delete;

  // A row and an event go to every monitor that has not failed; then the error of the first that fails is thrown. The log has
  // those of the others. `kind`: DDH_ROW_*. `program`: "" if there is only one.
  void row(int32_t kind, int64_t step, std::string_view program, std::span<const RowValue> values);
  // `kind`: DDH_EVENT_RESUMED or DDH_EVENT_CHECKPOINT. `text`: as ddh_event has it.
  void event(int32_t kind, int64_t step, const std::string& text);
  // `summary`: a JSON object. Called only if the run did not fail.
  void end(const std::string& summary);
  // The run fails after `step`: tells every monitor that has neither failed nor ended. Returns the sentences of those that
  // can't record it.
  std::vector<std::string> failed(int64_t step, const std::string& sentence);

 private:
  struct One {
    const ddh_monitor_api* table;
    Instance instance;
    bool is_open = true;  // it has neither failed nor ended
  };
  template <class Function, class Argument>
  static void call(One& one, PluginCall call, Function function, Argument argument);
  static void tell(One& one, const ddh_event& event);
  template <class Tell>
  void tell_all(Tell&& tell_one);

  std::shared_ptr<spdlog::logger> log_;
  std::deque<PluginSeat> seats_;  // elements stay in place
  std::vector<One> all_;
};

}  // namespace ddhost
