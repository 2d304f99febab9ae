// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/monitor.hpp: the C++ base class of a monitor. Each virtual function is the slot of that name in
// ddh/kind/monitor.h, which documents it. Failures are thrown and end the run. OutputFile is a file to which whole rows are
// appended.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class Monitor : public Instance {
 public:
  using Instance::Instance;
  virtual void begin(const ddh_monitor_args& args) = 0;
  virtual void row(const ddh_row& row) = 0;
  virtual void end(const char* /*summary*/) {}
  virtual void event(const ddh_event& /*event*/) {}  // kinds that a monitor doesn't know are no error

  [[nodiscard]] const void* interface(std::string_view id) const override;

  [[nodiscard]] static std::span<const ddh_row_value> values(const ddh_row& row) { return {row.values, row.n_values}; }
};

// A file that is written from its beginning, or from where an older run left off. Each write either is in the file when it
// returns, or throws and leaves the file as it was.
class OutputFile {
 public:
  OutputFile() = default;
  explicit OutputFile(std::string path);
  // Keeps the lines of an older file up to the first that `is_kept` refuses; half a line at the end goes too. The others are
  // there until the first write or `cut`, because a run may still fail to begin, and then no line is lost.
  static OutputFile continued(std::string path, const std::function<bool(std::string_view line)>& is_kept);
  void write(std::string_view bytes);
  // Removes the lines that are not kept. For a monitor that does not write in each `row`.
  void cut();
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
  bool has_more_ = false;  // behind the place where the next write begins
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
