// SPDX-License-Identifier: Apache-2.0
//
// kgat/data.hpp: what users chose, and what is known about the items: a folder in the format of KGAT, or data that is made
// up.
//
//   train.txt, test.txt   a user and its items in each line; in test.txt a user of train.txt, maybe without items
//   kg_final.txt          head relation tail, ids of entities; items are the first entities
//   user_list.txt, item_list.txt, entity_list.txt, relation_list.txt   optional: a header, then a line for each id
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace kgat {

struct Triple {
  int32_t head, relation, tail;
  auto operator<=>(const Triple&) const = default;
};

struct KgatData {
  std::vector<std::vector<int32_t>> train, test;  // items of each user, ascending
  std::vector<Triple> kg;                         // distinct, ascending
  int64_t n_items = 0, n_entities = 0, n_relations = 0;
  [[nodiscard]] int64_t n_users() const { return static_cast<int64_t>(train.size()); }
};

// What data.path says; without it the folder `dataset` where ddh::find_data finds it, else data that is made up. Throws
// ddh::Error: one sentence with file and line.
KgatData open_data(const ddh::Host& host, const std::string& dataset);

// `skip_bad_lines`: lines that can't be used are left out, and counted in a warning.
KgatData read_data(const ddh::Host& host, const std::string& folder, bool skip_bad_lines);

// Users and items of four tastes, and a graph of entities that tells the tastes of items.
KgatData make_up_data();

// Moves a part of each user's training items into `test`, which loses what it had. The same items for every seed.
void hold_out(KgatData& data, double part);

}  // namespace kgat
