// SPDX-License-Identifier: Apache-2.0
//
// bad_monitor: records nothing, and a fault by option.
#include "ddh/sdk/monitor.hpp"
#include "support/misbehave.hpp"

namespace {

using ddhost::test::Fault;
using ddhost::test::misbehave;

class BadMonitor final : public ddh::Monitor {
 public:
  explicit BadMonitor(const ddh_create& create) : Monitor(create), fault_(host, "monitor.bad_monitor") {}

  void begin(const ddh_monitor_args& /*args*/) override { fail_in("begin", 0); }
  void row(const ddh_row& row) override { fail_in("row", row.step); }
  void end(const char* /*summary*/) override { fail_in("end", 0); }

  [[nodiscard]] const void* interface(std::string_view id) const override {
    if (id != DDH_MONITOR_IFACE || fault_.at != "get_interface") return Monitor::interface(id);
    if (fault_.what == "no_table") return nullptr;
    static const ddh_monitor_api empty = {sizeof(ddh_monitor_api), 0, nullptr, nullptr, nullptr};
    return &empty;
  }

 private:
  void fail_in(const char* call, int64_t step) const {
    if (!fault_.hits(call, -1, step)) return;
    misbehave(fault_.what, nullptr);
    if (fault_.what == "throw") throw std::runtime_error("the tide is out");
    if (fault_.what == "throw_int") throw 7;  // NOLINT: what no plugin should throw
  }
  const Fault fault_;
};

constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(BadMonitor, monitor, "bad_monitor", "0.1.0", "mistakes on purpose, for tests",
               R"({"properties": {)" DDH_FAULT_SCHEMA R"(}})", kNeeds, DDH_CAP_IN_PROCESS);
