// SPDX-License-Identifier: Apache-2.0
//
// cli/compare.cpp: `ddhost compare`.
#include <algorithm>

#include "cli/commands.hpp"
#include "cli/measured_runs.hpp"

namespace ddhost {

int compare_strategies(const CommandLine& line, std::ostream& out) {
  const auto or_one = [](const std::vector<std::string>& list) {
    return list.empty() ? std::vector<std::string>{""} : list;
  };
  std::vector<ComparedCase> cases;
  for (const std::string& model : or_one(line.compare.models))
    for (const std::string& size : or_one(line.compare.sizes))
      for (const std::string& strategy : line.compare.strategies) cases.push_back({model, size, strategy, {}});
  const StopSignals signals;
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
