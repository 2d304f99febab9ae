// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/checkpoint_write.hpp: writes a checkpoint from all ranks at once. Each rank writes its own ranges at their
// final places.
//
//   CheckpointSave save(...);   another thread begins to copy what this rank holds, and then writes the copy
//   ... forward, backward ...   these change no parameters and no optimizer state
//   save.wait_copied();         before the update
//   ... training continues ...  until written() on every rank
//   save.finish();              waits for the rest, and commits
//
// So no later value ever gets into the file. The constructor itself copies what only the main thread can read (memory of a
// device, files) and buffers, which forward changes. Copying during forward and backward: DataStates-LLM (Maurya et al. 2024).
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "engine/services/comm.hpp"
#include "engine/services/memory.hpp"
#include "engine/services/staging.hpp"
#include "engine/weights/manifest.hpp"
#include "engine/weights/rank_writer.hpp"
#include "engine/weights/state_pieces.hpp"
#include "engine/weights/together.hpp"

namespace ddhost {

struct SaveSettings {
  std::filesystem::path run_dir;
  bool in_background = true;
  uint64_t most_bytes = 0;  // of this rank's copy; the rest is written before training continues. 0: no limit
};

class CheckpointSave {
 public:
  // Begins <run_dir>/checkpoints/step-N for the step of `manifest`, whose files and tensors are filled in here. Every rank
  // throws ddh::Error if one of them fails, and the folder is removed. All references outlive the object. [collective]
  CheckpointSave(SaveSettings settings, Manifest manifest, const StateSource& source, const CheckpointLayout& layout,
                 const Comm& comm, Staging& staging, Memory& memory);
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;
  // Removes the folder if finish() was not called.
  ~CheckpointSave();

  [[nodiscard]] int64_t step() const { return manifest_.progress.step; }
  // Waits until the copy is made. Must be called before parameters or optimizer state change.
  void wait_copied() const { is_copied_.wait(false, std::memory_order_acquire); }
  // Whether this rank has written its part or failed.
  [[nodiscard]] bool written() const { return written_.load(std::memory_order_acquire); }
  // Waits until every rank has written, and commits. Throws on every rank if one has failed. [collective]
  void finish();

 private:
  // A part of the copy, and the bytes of a tensor that it holds.
  struct Copied {
    size_t tensor;
    uint64_t begin, bytes;  // of the tensor
    uint64_t place;         // in the copy
    const char* from;       // values that the thread copies; nullptr: they are copied
  };
  void copy_or_write(const StateSource& source, Staging& staging, const std::vector<StatePiece>& pieces);
  bool copy_later(const StatePiece& piece, const Staging& staging);
  template <class Read>
  void take(size_t tensor, uint64_t begin, uint64_t bytes, Read&& read);
  void copy_rest();
  void write_copy();
  void release_copy();
  void drop() noexcept;

  const SaveSettings settings_;
  Manifest manifest_;
  const CheckpointLayout& layout_;
  const Comm& comm_;
  Memory& memory_;
  std::optional<RankWriter> writer_;
  std::vector<Copied> copied_;
  std::unique_ptr<char[]> copy_;
  uint64_t copy_bytes_ = 0, copy_used_ = 0;
  FailureText failure_{};  // of the thread
  std::atomic<bool> is_copied_{false}, written_{false};
  bool committed_ = false;
  std::thread thread_;
};

}  // namespace ddhost
