// SPDX-License-Identifier: Apache-2.0
//
// engine/record/closing.hpp: what a person is told at the end of a training: how fast it was, where the weights are, and
// which commands come next.
#pragma once

#include <cstdint>
#include <string>

#include "engine/record/run_output.hpp"

namespace ddhost {

struct RunClosing {
  RunOutput::Totals totals;
  int64_t last_step = 0;   // done
  int64_t step_count = 0;  // of the whole run
  std::string run_dir;
  std::string weights;          // the file of the final weights; "": none was written
  int64_t checkpoint_step = 0;  // of the newest checkpoint in run_dir; 0: none
  bool stopped = false;         // before its last step
  bool can_evaluate = false, can_generate = false;
};

// The lines, each of at most `columns` but for commands, which stay whole so that they can be copied.
std::string closing_text(const RunClosing& run, size_t columns);

// From the working folder if the path is below it.
std::string shown_path(const std::string& path);

// The command that continues the run of a folder, as a line for a shell.
std::string resume_command(const std::string& run_dir);

}  // namespace ddhost
