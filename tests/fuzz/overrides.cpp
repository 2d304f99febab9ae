// SPDX-License-Identifier: Apache-2.0
//
// Arguments of the command line, one in each line.
#include <sstream>

#include "config/config.hpp"
#include "config/run_length.hpp"
#include "fuzz/fuzz.hpp"

using namespace ddhost;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::may_refuse([&] {
    std::istringstream lines(fuzz::text_of(data, bytes));
    std::vector<Override> overrides;
    for (std::string line; std::getline(lines, line);) {
      if (!is_utf8(line)) return;  // refused by the command line
      overrides.push_back(parse_override(line));
    }
    const UserConfig user = UserConfig::read("", overrides);
    const Config config(user, run_sections(user), /*plugin_sections=*/false);
    static_cast<void>(config.effective().dump());
  });
  return 0;
}
