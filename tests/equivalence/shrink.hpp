// SPDX-License-Identifier: Apache-2.0
//
// tests/equivalence/shrink.hpp: reduces a cell that shows a failure to the smallest one that still shows it: fewest
// options, ranks and steps.
#pragma once

#include <functional>

#include "equivalence/variants.hpp"

namespace ddhost::test {

// Whether a cell shows the failure. A cell that can't run at all does not.
using ShowsTrouble = std::function<bool(const Cell&)>;

// `cell` shows the failure. So does the result, from which nothing more can be removed.
Cell shrink(Cell cell, const ShowsTrouble& shows);

// The same cell with another variant.
Cell in_way(Cell cell, const Variant& way);
// Whether the cell's bits differ from those of the same cell with the variant `reference`.
ShowsTrouble differs_from(const Variant& reference);

}  // namespace ddhost::test
