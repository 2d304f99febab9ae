// SPDX-License-Identifier: Apache-2.0
//
// tests/equivalence/shrink.hpp: from a cell that shows some trouble to the smallest one that still shows it: fewest options,
// fewest ranks, fewest steps.
#pragma once

#include <functional>

#include "equivalence/variants.hpp"

namespace ddhost::test {

// Whether a cell shows the trouble. A cell that can't run at all doesn't.
using ShowsTrouble = std::function<bool(const Cell&)>;

// `cell` shows the trouble, and so does what comes back, from which nothing can be taken away.
Cell shrink(Cell cell, const ShowsTrouble& shows);

// The same cell in another way.
Cell in_way(Cell cell, const Way& way);
// Whether the cell's bits differ from those of the same cell run in the way `reference`.
ShowsTrouble differs_from(const Way& reference);

}  // namespace ddhost::test
