// SPDX-License-Identifier: Apache-2.0
//
// engine/record/run_history.hpp: run.json in the folder of a run, which holds what config.json does not say. It has one
// entry for each start of the run:
//
//   {"starts": [{"launcher": 4711, "began": "2026-11-26T13:01:50Z", "version": "0.1.0", "machine": {...},
//                "plugins": [{"kind": "model", "id": ..., "version": ..., "file": ...}],
//                "given": [{"key": ..., "source": ..., "default": ...}], "warnings": [...],
//                "ended": "2026-11-26T13:02:50Z", "exit_code": 1, "sentence": "...",
//                "ranks": [{"rank": 0, "memory_bytes": ..., "plan_bytes": ..., "time_ms": ...}]}]}
//
// `ranks` is there after a failure. The last four fields are missing while the run is going on, and if its launcher was killed.
#pragma once

#include <filesystem>
#include <string>

namespace ddhost {

inline constexpr const char* kRunHistory = "run.json";

// Appends an entry; the oldest are left out where there are more than 100. `facts`: a JSON object. Throws ddh::Error if the
// file can't be written.
void note_start(const std::filesystem::path& run_dir, const std::string& facts);
// Completes the last entry, if it is of a start by `launcher` that has not ended. 0: of a run of several launchers, whose head
// may not have started rank 0. False: there is none, so the run has not begun, or the file can't be read.
// `ranks`: a JSON array with what the ranks of a run that failed had counted; "": none.
bool note_end(const std::filesystem::path& run_dir, int launcher, int exit_code, const std::string& sentence,
              const std::string& ranks = "");

// "2026-11-26T13:01:50Z", of now.
std::string time_text();

}  // namespace ddhost
