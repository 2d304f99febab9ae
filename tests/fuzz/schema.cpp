// SPDX-License-Identifier: Apache-2.0
//
// The schema of a plugin's options.
#include "config/schema.hpp"

#include "fuzz/fuzz.hpp"

using namespace ddhost;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::may_refuse([&] {
    const Schema schema = parse_schema(fuzz::text_of(data, bytes).c_str(), "plugin 'fuzz'");
    for (const Option& option : schema.options) {
      static_cast<void>(option.type_text() + option.legal_text());
      for (const char* value : {"null", "-1", "2.5", "1e300", "\"text\"", "[1, null]", "{}", "true"})
        fuzz::may_refuse([&] {
          static_cast<void>(checked_value(option, Json::parse(value), "section." + option.name, "on the command line"));
        });
    }
  });
  return 0;
}
