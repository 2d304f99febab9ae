// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/checkpoint_folder.hpp: the folder <run.dir>/checkpoints and what makes one of its folders a checkpoint.
//
//   step-100/           manifest.json, the tensors' files, and COMPLETE, which is written last
//   latest              the name of the newest
//   best                a link to the one of the best evaluation (checkpoint.best)
//   .step-100.partial/  being written
//
// A folder is whole if COMPLETE has the size and checksum of the manifest, and the manifest those of the files'
// headers.
//
// The checkpoint that a user's path stands for, wherever one is taken:
//
//   runs/a/checkpoints/step-100   that checkpoint
//   runs/a/checkpoints/latest     the one that this file names
//   runs/a, runs/a/checkpoints    the newest whole one
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

struct CheckpointPlace {
  int64_t step;
  std::filesystem::path folder;
};

std::filesystem::path checkpoints_folder(const std::filesystem::path& run_dir);
// The folder of a run. `path` is that folder, or the folder of the run's checkpoints.
std::filesystem::path run_folder_of(const std::filesystem::path& path);
std::filesystem::path checkpoint_folder(const std::filesystem::path& run_dir, int64_t step);

// The step of a folder with the name of a checkpoint.
std::optional<int64_t> step_of_checkpoint(const std::filesystem::path& folder);

// All folders step-N, the newest first, whole or not. Empty if there is none.
std::vector<CheckpointPlace> list_checkpoints(const std::filesystem::path& run_dir);

// The manifest of a whole checkpoint; chunks of tensors are not read. Throws ddh::Error that says what is damaged.
Manifest open_checkpoint(const std::filesystem::path& folder);
// Whether an error of it means damage. Otherwise the system did not let the files be opened, and they may be whole.
bool is_damage(const ddh::Error& error);
struct VerifiedTensors {
  uint64_t bytes = 0;    // that were read
  std::string unusable;  // the first value from which no run can go on (usable_values.hpp), as a sentence; "": none
  // Tensors with values that are NaN or infinite, and how many.
  struct Nonfinite {
    std::string tensor;
    uint64_t values;
  };
  std::vector<Nonfinite> nonfinite;
};
// Throws, naming the file and the tensor, if a byte of a tensor is damaged.
VerifiedTensors verify_tensors(const std::filesystem::path& folder, const Manifest& manifest);

// The folder in which a checkpoint is written until it is whole.
std::filesystem::path partial_folder(const std::filesystem::path& run_dir, int64_t step);
// Removes what a crash has left: partly written or partly removed folders, and files that were not renamed.
void remove_leftovers(const std::filesystem::path& run_dir);
// Removes folders damaged-step-N, to which checkpoints that can't be loaded are renamed.
void remove_damaged(const std::filesystem::path& run_dir);
// Lets `latest` name the newest folder, if a crash came in between.
void note_newest(const std::filesystem::path& run_dir);
// Creates that folder, after remove_leftovers.
std::filesystem::path begin_checkpoint(const std::filesystem::path& run_dir, int64_t step);
// Turns that folder into a checkpoint. The tensors' files must be on the disk already.
void commit_checkpoint(const std::filesystem::path& run_dir, const Manifest& manifest);
// Makes a folder with all tensors' files a checkpoint, also if it was one before.
void complete_checkpoint(const std::filesystem::path& folder, const Manifest& manifest);
// Removes that folder after an error.
void drop_checkpoint(const std::filesystem::path& run_dir, int64_t step) noexcept;

// Lets `best` lead to the checkpoint of a step.
void mark_best(const std::filesystem::path& run_dir, int64_t step);
// The step that `best` leads to, if there is one.
std::optional<int64_t> best_step(const std::filesystem::path& run_dir);

// What to keep of the checkpoints up to the newest one.
struct KeepRule {
  int64_t last = 0;   // number of newest checkpoints to keep; 0: all
  int64_t every = 0;  // and those whose step is a multiple; 0: none
};
// Removes the others but for the best one, and returns their steps. Checkpoints after `newest` stay.
std::vector<int64_t> prune_checkpoints(const std::filesystem::path& run_dir, int64_t newest, const KeepRule& keep);
// Removes the checkpoints of later steps, whole or not, and returns their steps.
std::vector<int64_t> remove_checkpoints_after(const std::filesystem::path& run_dir, int64_t step);

struct NamedCheckpoint {
  std::filesystem::path folder;    // the path itself where it is none of these
  std::vector<std::string> notes;  // sentences about what was chosen, and why a newer one was not
};
NamedCheckpoint named_checkpoint(const std::filesystem::path& path);

// Of a safetensors file, or of an index of such files.
bool is_safetensors_name(const std::filesystem::path& path);

// The same of weights: a folder that holds safetensors files, such as a run's final weights, stands for them.
NamedCheckpoint named_weights(const std::filesystem::path& path);

}  // namespace ddhost
