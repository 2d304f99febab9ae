// SPDX-License-Identifier: Apache-2.0
//
// plan/run_folder.hpp: the folder of a run: its name, its lock, and what is removed again if the run comes to nothing.
#pragma once

#include "launch/launch.hpp"
#include "plan/prepare.hpp"

namespace ddhost {

constexpr const char* kOutputFolder = "output";  // of the ranks, with launch.output=files

// Sets run.name, run.dir and RunPlan::run_dir. Creates nothing.
void choose_run_folder(PreparedRun& plan);

// Creates and locks the run's folder, and tests that it, and the folder of the final weights, are writable. After an
// error nothing is left that was not there.
void make_run_folder(PreparedRun& plan);

// For clean_up_folder, which another process calls: the folder, what was there before, and hidden files of final
// weights.
std::string folder_note(const PreparedRun& run);

// The note of another host than the head's, for end_memory alone.
std::string member_note(const std::filesystem::path& run_dir);

// The run's folder in such a note; "": there is none.
std::filesystem::path folder_of(const std::string& note);

// Called after all processes of the run have ended. Removes hidden files of final weights, whose content has its name by
// now. If the run failed, removes a checkpoint that was being written. If it failed, or was resumed, and has done no step,
// removes its own files and the folders that it has made, so that nothing is left that was not there before. Rows,
// checkpoints and weights stay, with the files beside them. Another run may have taken the folder meanwhile: then only the
// hidden files are removed. "": there is no folder.
void clean_up_folder(const std::string& note, bool has_failed);

// At the end of a run: removes its checkpoints in the memory of this host (checkpoint.memory_every), unless it failed and its
// newest one is there, or a member has lost the head, which may start again. Then it returns a sentence that says so; else "".
// Of several launchers the head says it for all. `run_id`: of such a run.
std::string end_memory(const std::string& note, const Outcome& end, uint64_t run_id);

}  // namespace ddhost
