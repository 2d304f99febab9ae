// SPDX-License-Identifier: Apache-2.0
//
// config/nearest.hpp: "did you mean": the name nearest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddhost {

// The number of insertions, deletions, replacements and swaps of adjacent characters that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, or "" if none is close enough.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace ddhost
