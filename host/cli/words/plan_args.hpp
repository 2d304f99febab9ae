// SPDX-License-Identifier: Apache-2.0
//
// cli/words/plan_args.hpp: the arguments of commands that prepare a training and do not start it: `ddhost plan`, `ddhost
// data peek`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ddhost {

struct PlanArgs {
  bool all_strategies = false, json = false;
  std::vector<std::string> sizes;        // of the model: values of model.size, or "all" alone; empty: the user's
  std::optional<uint64_t> memory_bytes;  // of each rank
};

struct PeekArgs {
  std::string program;  // empty: the first that the run trains
  int64_t epoch = 0, index = 0, samples = 16;
  std::filesystem::path out = ".";  // folder of sheets
  bool json = false;
};

// The flags of `ddhost plan` that no run has.
void add_plan_flags(CLI::App& plan, std::string& memory, std::string& sizes, PlanArgs& args);
// The same of `ddhost data peek`.
void add_peek_flags(CLI::App& peek, PeekArgs& args);

// The value of --memory. A number alone would be bytes, which nobody means here.
std::optional<uint64_t> memory_from_flag(const std::string& text);
// The value of --sizes; each once.
std::vector<std::string> sizes_from_flag(const std::string& text);

}  // namespace ddhost
