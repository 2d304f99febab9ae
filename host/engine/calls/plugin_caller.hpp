// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/plugin_caller.hpp: all calls from the host into a plugin. A call is written to the rank's record, for
// the launcher and its watchdog. A failure becomes an error message that names plugin and call. The length, end and
// characters of the plugin's message are checked.
#pragma once

#include <cxxabi.h>

#include <array>
#include <exception>
#include <string>
#include <utility>

#include "ddh/sdk/plugin.hpp"
#include "engine/calls/rank_record.hpp"

namespace ddhost {

// The unit of the model that a call is about, if any.
struct UnitName {
  int32_t index = -1;
  const char* name = nullptr;
};

// A ddh_err whose content stays within bounds, whatever the plugin writes.
class CallError {
 public:
  CallError() : err_{sizeof(ddh_err), 0, static_cast<uint32_t>(text_.size()), 0, text_.data()} {}
  CallError(const CallError&) = delete;
  CallError& operator=(const CallError&) = delete;
  ddh_err* get() { return &err_; }
  // Valid UTF-8; "" if the plugin gave no reason.
  [[nodiscard]] std::string text() const;

 private:
  std::array<char, 1024> text_{};
  ddh_err err_;
};

// "DDH_INTERNAL (13)"; also defined for an unknown number.
std::string code_name(ddh_rc code);

// Calls one plugin of one rank from one thread. Small; copies refer to the same plugin.
class PluginCaller {
 public:
  // Without a record.
  explicit PluginCaller(const char* name = "the plugin") : name_(name) {}
  // `name` and `record` outlive the object: "strategy 'zero1'". No record: nullptr.
  PluginCaller(const char* name, RankRecord* record, RankThread thread = RankThread::kMain)
      : name_(name),
        lane_(record == nullptr ? nullptr : &record->lane(thread)),
        misuse_(record == nullptr ? nullptr : &record->misuse()),
        number_(record == nullptr ? uint8_t{0} : record->add_plugin(name)) {}

  [[nodiscard]] const char* name() const { return name_; }
  // The calling thread is the one whose calls are recorded.
  void note_thread(int32_t tid) const {
    if (lane_ != nullptr) lane_->set_thread(tid);
  }

  // Records a call during its lifetime. A call of a thread without a lane, such as a device's stream or a plugin's
  // thread, is not recorded, because a lane has one writer.
  class Entered {
   public:
    Entered(CallLane* lane, uint8_t number, PluginCall call, int32_t unit) noexcept
        : lane_(lane != nullptr && lane->is_of_this_thread() ? lane : nullptr) {
      if (lane_ != nullptr) lane_->enter(number, call, unit);
    }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    ~Entered() {
      if (lane_ != nullptr) lane_->leave();
    }

   private:
    CallLane* lane_;
  };
  // For calls that can't fail.
  [[nodiscard]] Entered enter(PluginCall call, int32_t unit = -1) const noexcept {
    return {lane_, number_, call, unit};
  }

  // Calls a table's function with a trailing ddh_err*; throws ddh::Error when it fails, and when a plugin of the rank
  // has done wrong in a call of the host that can't return an error.
  template <class Function, class... Args>
  void operator()(PluginCall call, Function function, Args&&... args) const {
    on_unit(call, UnitName{}, function, std::forward<Args>(args)...);
  }
  template <class Function, class... Args>
  void on_unit(PluginCall call, const UnitName& unit, Function function, Args&&... args) const {
    CallError error;
    std::string thrown;
    ddh_rc rc = DDH_OK;
    {
      const Entered entered = enter(call, unit.index);
      try {
        rc = may_throw(function)(std::forward<Args>(args)..., error.get());
      } catch (const std::exception& exception) {
        thrown = ddh::str("threw an exception: ", exception.what());
      } catch (const abi::__forced_unwind&) {  // the thread ends
        throw;
      } catch (...) {
        thrown = "threw an exception of an unknown type";
      }
    }
    if (misuse_ != nullptr) misuse_->require_none();
    if (!thrown.empty()) blame(call, unit, thrown);
    if (rc != DDH_OK) failed(call, unit, rc, error);
  }

  // Throws an error about a call's result or behaviour: "strategy 'x', acquire of unit 'h.3': ...; fix the plugin".
  template <class... Parts>
  [[noreturn]] void blame(PluginCall call, const UnitName& unit, const Parts&... parts) const {
    throw ddh::Error(DDH_FAILED_PRECONDITION, where(call, unit) + ddh::str(parts...) + "; fix the plugin");
  }
  // Runs checks of a call's result. Their errors are prefixed with plugin and call.
  template <class Check>
  void checked(PluginCall call, Check&& check) const {
    try {
      check();
    } catch (const ddh::Error& error) {
      throw ddh::Error(error.code(), where(call, {}) + error.what());
    }
  }

 private:
  // The tables promise noexcept, and a plugin may break it.
  template <class Result, class... Args>
  static auto may_throw(Result (*function)(Args...) noexcept) -> Result (*)(Args...) {
    return function;
  }
  template <class Function>
  static Function may_throw(Function function) {
    return function;
  }
  [[nodiscard]] std::string where(PluginCall call, const UnitName& unit) const;
  [[noreturn]] void failed(PluginCall call, const UnitName& unit, ddh_rc code, const CallError& error) const;

  const char* name_;
  CallLane* lane_ = nullptr;
  const Misuse* misuse_ = nullptr;  // of the rank
  uint8_t number_ = 0;
};

}  // namespace ddhost
