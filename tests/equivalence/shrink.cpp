// SPDX-License-Identifier: Apache-2.0
#include "equivalence/shrink.hpp"

#include <iterator>

namespace ddhost::test {
namespace {

// Removes unneeded options: a word, or a flag with its value.
template <class ListOf>
bool drop_options(Cell& cell, const ListOf& list_of, const ShowsTrouble& shows) {
  bool dropped = false;
  for (size_t i = 0; i < list_of(cell).size();) {
    const bool flag = list_of(cell)[i].rfind("--", 0) == 0;
    Cell smaller = cell;
    const auto at = std::next(list_of(smaller).begin(), static_cast<std::ptrdiff_t>(i));
    list_of(smaller).erase(at, std::next(at, flag ? 2 : 1));
    if (shows(smaller)) {
      cell = std::move(smaller);
      dropped = true;
    } else {
      i += flag ? 2 : 1;
    }
  }
  return dropped;
}

bool lower(Cell& cell, int Cell::*number, const ShowsTrouble& shows) {
  for (int n = 1; n < cell.*number; ++n) {
    Cell smaller = cell;
    smaller.*number = n;
    if (!shows(smaller)) continue;
    cell = std::move(smaller);
    return true;
  }
  return false;
}

}  // namespace

Cell in_way(Cell cell, const Variant& way) {
  cell.way = way;
  return cell;
}

Cell shrink(Cell cell, const ShowsTrouble& shows) {
  for (bool changed = true; changed;) {
    changed = lower(cell, &Cell::steps, shows);  // first, because it makes the rest faster
    changed |= lower(cell, &Cell::world, shows);
    changed |= drop_options(
        cell, [](Cell& c) -> Options& { return c.options; }, shows);
    changed |= drop_options(
        cell, [](Cell& c) -> Options& { return c.way.options; }, shows);
  }
  return cell;
}

ShowsTrouble differs_from(const Variant& reference) {
  return [reference](const Cell& cell) {
    const Result other = attempt(cell);
    if (other.code != 0) return false;
    const Result expected = attempt(in_way(cell, reference));
    return expected.code == 0 && !same_bits(expected, other);
  };
}

}  // namespace ddhost::test
