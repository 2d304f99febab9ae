// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/monitor.hpp: the C++ base class of a monitor. Each virtual function is the slot of that name in
// ddh/kind/monitor.h, which documents it. Failures are thrown and end the run. OutputFile is a text file that always
// holds whole lines.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>
#include <string>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class Monitor : public Instance {
 public:
  using Instance::Instance;
  virtual void begin(const ddh_monitor_args& args) = 0;
  virtual void row(const ddh_row& row) = 0;
  virtual void end(const char* /*summary*/) {}

  [[nodiscard]] const void* interface(std::string_view id) const override;

  [[nodiscard]] static std::span<const ddh_row_value> values(const ddh_row& row) { return {row.values, row.n_values}; }
};

// A file that is written from its beginning, or from where an older run left off. Each write either is in the file when it
// returns, or throws and leaves the file as it was.
class OutputFile {
 public:
  OutputFile() = default;
  explicit OutputFile(std::string path);
  // Keeps the lines of an older file up to the first that `is_kept` refuses; half a line at the end goes too.
  template <class IsKept>
  static OutputFile continued(std::string path, IsKept&& is_kept);
  void write(std::string_view bytes);
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

inline const void* Monitor::interface(std::string_view id) const {
  static const ddh_monitor_api table = {
      sizeof(ddh_monitor_api),
      0,
      [](ddh_inst* i, const ddh_monitor_args* args, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Monitor>(i).begin(copy_of(args)); });
      },
      [](ddh_inst* i, const ddh_row* row, ddh_err* err) noexcept {
        return guard(err, [&] {
          const ddh_row mine = copy_of(row);
          if (mine.kind != DDH_ROW_STEP && mine.kind != DDH_ROW_EVAL)
            fail(DDH_UNIMPLEMENTED, "rows of kind ", mine.kind, " are unknown to this monitor");
          self_as<Monitor>(i).row(mine);
        });
      },
      [](ddh_inst* i, const char* summary, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Monitor>(i).end(summary); });
      },
  };
  return id == DDH_MONITOR_IFACE ? &table : nullptr;
}

inline OutputFile::OutputFile(std::string path) : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wbe")) {
  if (file_ == nullptr)
    fail(DDH_PERMISSION_DENIED, "cannot write '", path_, "': ", std::strerror(errno), "; give another run.dir");
}

template <class IsKept>
OutputFile OutputFile::continued(std::string path, IsKept&& is_kept) {
  std::ifstream old(path, std::ios::binary);
  if (!old) return OutputFile(std::move(path));
  long kept = 0;
  for (std::string line; std::getline(old, line) && !old.eof() && is_kept(std::string_view(line));)
    kept += static_cast<long>(line.size()) + 1;
  OutputFile out;
  out.path_ = std::move(path);
  out.file_.reset(std::fopen(out.path_.c_str(), "r+be"));
  if (out.file_ == nullptr || ::ftruncate(fileno(out.file_.get()), kept) != 0 ||
      std::fseek(out.file_.get(), kept, SEEK_SET) != 0)
    fail(DDH_PERMISSION_DENIED, "cannot continue '", out.path_, "': ", std::strerror(errno), "; give another run.dir");
  return out;
}

inline void OutputFile::write(std::string_view bytes) {
  const long whole = std::ftell(file_.get());
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size() && std::fflush(file_.get()) == 0) return;
  const int error = errno;
  const bool cut = ::ftruncate(fileno(file_.get()), whole) == 0;
  fail(DDH_RESOURCE_EXHAUSTED, "cannot write '", path_, "': ", std::strerror(error),
       cut ? "" : " (it ends in half a row)", "; free some space or give another run.dir");
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
