// SPDX-License-Identifier: Apache-2.0
//
// config/given.hpp: the meaning of the user's values. An alias becomes its key, with the value in that key's unit. null
// on the command line removes the file's value. Two names of one key must agree.
#pragma once

#include <string>
#include <vector>

#include "config/host_schema.hpp"
#include "config/user_config.hpp"

namespace ddhost {

// One value that the user gave.
struct Given {
  std::string key;       // the key: "strategy.reduce_bucket_bytes"
  std::string name;      // as the user wrote it: "strategy.reduce_bucket_size"
  Json value;            // value of the key: checked, in its unit, paths absolute
  const Option* option;  // option of the key; owned by the sections
  bool from_file;
  std::string source;  // "the command line", "'gpt.json' (as strategy.reduce_bucket_size)"
  std::string said;    // for messages: "strategy.reduce_bucket_size = 500 on the command line"
  std::string words;   // for messages about the key, if the user wrote another word: "--nproc", "strategy.old = 500"
  Json defaults = {};  // Alias::defaults of the name
};

// Values in the order of the layers; the last value of a key counts. Error: an unknown name, an illegal value, or two
// names of one key with different values in one layer. With plugin_sections == false the options of plugins are not
// known yet, and the user's values for them are ignored.
std::vector<Given> values_given(const UserConfig& user, const std::vector<Section>& sections, bool plugin_sections);

}  // namespace ddhost
