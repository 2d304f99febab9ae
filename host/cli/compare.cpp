// SPDX-License-Identifier: Apache-2.0
//
// cli/compare.cpp: `ddhost compare`.
#include <algorithm>

#include "cli/commands.hpp"
#include "cli/measured_runs.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// Of several models each has its own names of sizes: those that it accepts, or all if it accepts none.
std::vector<std::string> sizes_of(const std::string& model, const CommandLine& line,
                                  const std::vector<std::string>& sizes) {
  if (line.compare.models.size() < 2 || sizes.size() < 2) return sizes;
  require_own_folder(line.compare.out);
  const fs::path asked = line.compare.out / "rounds" / "asked.txt";
  fs::create_directories(asked.parent_path());
  std::vector<std::string> out;
  for (const std::string& size : sizes) {
    std::vector<std::string> words = words_of_options(line);
    words.insert(words.begin(), "train");
    words.insert(words.end(), {"--model", model, "model.size=" + size, "--dry-run"});
    if (run_child(words, asked, asked).code == 0) out.push_back(size);
  }
  return out.empty() ? sizes : out;
}

}  // namespace

int compare_strategies(const CommandLine& given, const Registry& registry, std::ostream& out) {
  CommandLine line = given;
  for (const auto& [kind, names] :
       {std::pair(DDH_KIND_MODEL, line.compare.models), std::pair(DDH_KIND_STRATEGY, line.compare.strategies)}) {
    std::vector<std::string> unknown;
    std::copy_if(names.begin(), names.end(), std::back_inserter(unknown),
                 [&, of = kind](const std::string& name) { return !registry.knows(of, name); });
    require_known(kind_name(kind), unknown, registry.ids_of(kind));
  }
  const auto or_one = [](const std::vector<std::string>& list) {
    return list.empty() ? std::vector<std::string>{""} : list;
  };
  const StopSignals signals;
  std::vector<ComparedCase> cases;
  for (const std::string& model : or_one(line.compare.models))
    for (const std::string& size : sizes_of(model, line, or_one(line.compare.sizes)))
      for (const std::string& strategy : line.compare.strategies) cases.push_back({model, size, strategy, {}});
  choose_folder(line, cases);
  MeasuredRuns runs(line, cases);
  const int code = runs.measure();
  const auto is_there = [](const Measured& one) { return one.is_there(); };
  if (code == 0 && std::none_of(runs.cases().begin(), runs.cases().end(), is_there)) {
    print_sentence("no run succeeded, so there is nothing to compare; " + line.compare.out.string() +
                   " has what each printed");
    return 1;
  }
  runs.write_tables(out);
  const bool has_all = std::all_of(runs.cases().begin(), runs.cases().end(), is_there);
  return code != 0 ? code : has_all ? 0 : 1;
}

}  // namespace ddhost
