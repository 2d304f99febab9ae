// SPDX-License-Identifier: Apache-2.0
//
// report/run_diff.hpp: how two runs differ: options, plugins, machine, and the first step whose values differ.
#pragma once

#include "report/past_run.hpp"

namespace ddhost {

// {"options": [{"key", "a", "b"}], "plugins": [...], "machine": [...],
//  "values": {"compared": rows in both, "equal": rows, "first": null or {"step", "program", "evaluation",
//             "values": [{"name", "a", "b"}]}, "only_a": rows, "only_b": rows}}
// "a" or "b" is missing where only the other run has the key. Names and folders of the runs are no options here, and times
// are no values.
Json run_diff(const PastRun& a, const PastRun& b);

}  // namespace ddhost
