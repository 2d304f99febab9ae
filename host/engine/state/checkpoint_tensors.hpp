// SPDX-License-Identifier: Apache-2.0
//
// engine/state/checkpoint_tensors.hpp: reads the tensors of a checkpoint into the state of a run with any strategy and
// world, and writes a checkpoint from all ranks at once. Each rank writes its own ranges at their final places.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/host_parts.hpp"
#include "checkpoint/manifest.hpp"
#include "engine/services/comm/comm.hpp"
#include "engine/services/comm/together.hpp"
#include "engine/services/memory/staging.hpp"
#include "engine/services/run_codec.hpp"
#include "engine/state/piece_copy.hpp"
#include "engine/state/state_entries.hpp"
#include "engine/state/state_migration.hpp"
#include "engine/state/state_pieces.hpp"

namespace ddhost {

// Throws unless the checkpoint has the tensors that later phases need, and no others than those of the whole run: names the
// first that differs. Tensors of older state are those that the migration names. State of the strategy that differs between
// ranks may be missing, and state of another strategy may be there. Returns a sentence about what begins anew or is left out;
// "": nothing.
std::string check_same_tensors(const Manifest& manifest, const StateMigration& migration,
                               const CheckpointLayout& needed, const CheckpointLayout& whole,
                               const std::string& checkpoint);

// Of this rank.
struct ReadCount {
  uint64_t needed = 0;  // bytes that it holds
  uint64_t read = 0;    // from files: chunks, with the blocks in which they begin and end
};

// Overwrites what this rank holds, and the model's buffers. Each chunk is compared with its checksum before any of it is
// used. Returns the error of the first rank that finds damage, or "" if there is none. Throws on every rank if one fails for
// another reason, and on a rank whose strategy has other values after state_commit than were read. After an error the state
// is undefined. [collective]
std::string read_checkpoint(const std::filesystem::path& folder, const Manifest& manifest,
                            const StateMigration& migration, const StateSource& source, const CheckpointLayout& layout,
                            const Comm& comm, Staging& staging, ReadCount& count);

// Of a checkpoint in memory of a run on several hosts (checkpoint/host_parts.hpp).
struct HostSave {
  const Nodes* nodes;          // outlives the save
  int64_t copies;              // checkpoint.memory_copies
  uint64_t run_id, first_run;  // Part::Head
  [[nodiscard]] bool makes_files(int32_t rank) const { return nodes->local_rank(rank) == 0; }
};

struct SaveSettings {
  std::filesystem::path run_dir;
  bool in_background = true;
  uint64_t most_bytes = 0;          // of this rank's copy; the rest is written before training continues. 0: no limit
  const RunCodec* codec = nullptr;  // of the run, whose state is written before training continues; null: none
  std::optional<HostSave> by_host = std::nullopt;  // each host has files of its own, in its `run_dir`
  std::filesystem::path memory_of = {};  // the folder of the run whose memory_folder has `run_dir`; "": none has
};

// The bytes that a rank writes.
uint64_t written_bytes(const StateSource& source, const CheckpointLayout& layout, bool is_first_rank);

// What a rank's saves take beside the copy that is written behind training.
uint64_t copy_buffer_bytes();

// Takes the memory that a rank's saves need. [main]
void reserve_copy(CopyMemory& memory, const SaveSettings& settings, const StateSource& source,
                  const CheckpointLayout& layout, bool is_first_rank);

//   CheckpointSave save(...);   another thread begins to copy what this rank holds, and then writes the copy
//   ... forward, backward ...   these change no parameters and no optimizer state
//   save.wait_copied();         before the update
//   ... training continues ...  until written() on every rank
//   save.begin_shared_sums();   another thread reads the chunks that several ranks wrote
//   ... training continues ...  until written() on every rank
//   save.finish(reason);        waits for the rest, and commits
//
// So no later value ever gets into the file. The constructor itself copies what only the main thread can read (memory of a
// device, files) and buffers, which forward changes. Copying during forward and backward: DataStates-LLM (Maurya et al. 2024).
class CheckpointSave {
 public:
  // Begins <run_dir>/checkpoints/step-N for the step of `manifest`, whose files and tensors are filled in here. Every rank
  // throws ddh::Error if one of them fails, and the folder is removed. All references outlive the object. [collective]
  CheckpointSave(SaveSettings settings, Manifest manifest, const StateSource& source, const CheckpointLayout& layout,
                 const Comm& comm, Staging& staging, CopyMemory& memory);
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;
  // Removes the folder if finish() was not called.
  ~CheckpointSave();

  [[nodiscard]] int64_t step() const { return manifest_.progress.step; }
  // Waits until the copy is made. Must be called before parameters or optimizer state change.
  void wait_copied() const { is_copied_.wait(false, std::memory_order_acquire); }
  // Whether this rank has done its part, or failed.
  [[nodiscard]] bool written() const { return written_.load(std::memory_order_acquire); }
  // Called when written() is true on every rank. If several ranks wrote a chunk, the first call lets another thread compute
  // such checksums and returns true; written() is false until it is done.
  bool begin_shared_sums();
  // Waits until every rank has written, and commits. Throws on every rank if one has failed, or if there is a value from
  // which no run can go on (usable_values.hpp): the error names it and the rank that holds it, and ends with `reason`.
  // [collective]
  void finish(const std::string& reason);

 private:
  // Values that the thread copies.
  struct LaterCopy {
    char* to;
    const char* from;
    uint64_t bytes;
  };
  void copy_or_write(const StateSource& source, Staging& staging, const std::vector<StatePiece>& pieces);
  bool copy_later(const StatePiece& piece, const Staging& staging);
  template <class Read>
  void take(DoubleBuffer& past_copy, size_t tensor, uint64_t begin, uint64_t bytes, Read&& read);
  void copy_rest();
  void require_usable(const std::string& reason) const;
  void write_copy();
  void drop() noexcept;
  // The first rank, or the first of each host.
  [[nodiscard]] bool makes_files() const {
    return settings_.by_host ? settings_.by_host->makes_files(comm_.rank()) : comm_.rank() == 0;
  }
  [[nodiscard]] Part own_part(uint64_t manifest_sum, PartFiles& files) const;
  void commit_parts();

  const SaveSettings settings_;
  Manifest manifest_;
  const CheckpointLayout& layout_;
  const Comm& comm_;
  CopyMemory& memory_;
  std::optional<RankWriter> writer_;
  std::optional<PieceCopy> copy_;
  std::vector<LaterCopy> later_;
  FailureText failure_{};  // of the thread
  std::atomic<bool> is_copied_{false}, written_{false};
  bool shared_sums_begun_ = false;  // or there are none
  bool committed_ = false;
  std::thread thread_;
};

}  // namespace ddhost
