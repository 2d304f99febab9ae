// SPDX-License-Identifier: Apache-2.0
#include "cli/words/plan_args.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// An integer from `least` to `most`.
void add_count(CLI::App& app, const char* name, int64_t& to, int64_t least, int64_t most, const char* help) {
  app.add_option_function<std::string>(
      name,
      [&to, name, least, most](const std::string& text) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
        if (error != std::errc{} || end != text.data() + text.size() || to < least || to > most)
          throw CLI::ValidationError(ddh::str(name, " '", plain_text(text, kShownValue), "' is no integer from ", least,
                                              " to ", most, "; give one"));
      },
      help);
}

}  // namespace

void add_plan_flags(CLI::App& plan, std::string& memory, std::string& sizes, PlanArgs& args) {
  plan.add_flag("--all-strategies", args.all_strategies, "plan every strategy that `ddhost list` shows");
  plan.add_option("--sizes", sizes, "sizes of the model (model.size), separated by commas, or all");
  plan.add_option("--memory", memory, "memory of each rank: 80GiB; says which strategies fit");
  plan.add_flag("--json", args.json, "print the plan as JSON, in bytes");
}

void add_peek_flags(CLI::App& peek, PeekArgs& args) {
  constexpr int64_t kMost = int64_t{1} << 40;
  peek.add_option("--program", args.program, "program of the model; default: the first that the run trains");
  add_count(peek, "--epoch", args.epoch, 0, kMost, "epoch, from 0; default: 0");
  add_count(peek, "--index", args.index, 0, kMost, "place in the order of the epoch of the first sample, from 0");
  add_count(peek, "--samples", args.samples, 1, 10000, "number of samples; default: 16");
  peek.add_option("--out", args.out, "folder of the PNG files of images; default: the current folder");
  peek.add_flag("--json", args.json, "print the samples as JSON");
}

std::optional<uint64_t> memory_from_flag(const std::string& text) {
  const std::optional<uint64_t> bytes = bytes_from_text(text);
  if (bytes && *bytes > 0 && text.find_first_not_of("0123456789.") != std::string::npos) return bytes;
  ddh::fail(DDH_INVALID_ARGUMENT, "--memory '", plain_text(text, kShownValue), "' is not a size with a unit; ",
            "give for example 80GiB, with KB, MB, GB, TB, KiB, MiB, GiB or TiB");
}

std::vector<std::string> sizes_from_flag(const std::string& text) {
  std::vector<std::string> sizes;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const size_t begin = item.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    item = item.substr(begin, item.find_last_not_of(' ') - begin + 1);
    if (std::find(sizes.begin(), sizes.end(), item) == sizes.end()) sizes.push_back(item);
  }
  const bool has_all = std::find(sizes.begin(), sizes.end(), "all") != sizes.end();
  if (sizes.empty() || (has_all && sizes.size() > 1))
    ddh::fail(DDH_INVALID_ARGUMENT, "--sizes '", plain_text(text, kShownValue),
              "' names no sizes; give names separated by commas, or all alone");
  return sizes;
}

}  // namespace ddhost
