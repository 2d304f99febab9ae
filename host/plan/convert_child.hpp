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

struct ConvertTask {
  std::filesystem::path path;
  std::vector<Choice> formats;  // file and id; id "": all formats of the file
  bool is_chosen;               // by the user: then `matches` is not asked
  bool is_native;               // the host can read the path too
  uint64_t memory_bytes;
};

// The answer as JSON: {"none": true}, {"code", "sentence"}, or {"what", "step", "other_step", "format", "notes"}.
std::string convert_in_child(const ConvertTask& task, const RangeFile& out, ConvertRecord& record);

}  // namespace ddhost
