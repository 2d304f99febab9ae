// SPDX-License-Identifier: Apache-2.0
//
// The text of a config file, up to the effective configuration of the host's sections.
#include "config/config.hpp"
#include "config/run_length.hpp"
#include "fuzz/fuzz.hpp"

using namespace ddhost;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::may_refuse([&] {
    const UserConfig user = UserConfig::from_text(fuzz::text_of(data, bytes), "fuzz.json");
    const Config config(user, run_sections(user), /*plugin_sections=*/false);
    static_cast<void>(config.effective().dump());
  });
  return 0;
}
