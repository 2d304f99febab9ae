// SPDX-License-Identifier: Apache-2.0
//
// plan/convert_child.hpp: the part of a conversion that runs in the child process.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/durable.hpp"
#include "plan/convert.hpp"

namespace ddhost {

// What the child is doing, in memory that both processes see.
class ConvertRecord {
 public:
  ConvertRecord();
  ConvertRecord(const ConvertRecord&) = delete;
  ConvertRecord& operator=(const ConvertRecord&) = delete;
  ~ConvertRecord();

  // A call of the plugin begins: "open of format 'x'".
  void begin(const std::string& call);
  void end();
  // Changes with each call.
  [[nodiscard]] uint64_t calls() const;
  // The call that has not ended; "": none.
  [[nodiscard]] std::string call() const;
  // The child has written this once it begins; 0 before.
  void set_first_bytes(uint64_t bytes);
  [[nodiscard]] uint64_t first_bytes() const;

 private:
  struct Page;
  Page* page_;
};

// Memory of a process that no file backs.
uint64_t anonymous_bytes(pid_t pid);

// The answers are JSON: what each function says below, with "notes"; or {"code", "sentence", "is_memory", "notes"}, where
// is_memory says that the child had none left.

// {"file", "id"} of the format that recognizes the path, or {}. `is_native`: the host can read the path too.
std::string recognize_in_child(const std::filesystem::path& path, const std::vector<Choice>& formats, bool is_native,
                               uint64_t memory_bytes, ConvertRecord& record);

struct ConvertTask {
  std::filesystem::path path;
  Choice format;
  bool weights_only;
  uint64_t memory_bytes;
};
// {"what", "step", "other_step", "format"}
std::string convert_in_child(const ConvertTask& task, const RangeFile& out, ConvertRecord& record);

}  // namespace ddhost
