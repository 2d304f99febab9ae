// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/offloaded_state.hpp: values and optimizer state of this rank's segments, partly on a tier (tile_plan.hpp
// decides which part). The update processes them in tiles: while one tile is updated, the next one is read and the
// previous one is written.
//
//   OffloadedState state(host, layout, rank, settings);   // numbers only: plan with value_bytes, state_bytes, file_bytes
//   state.materialize();                                  // memory and files; a full disk is an error here
//   state.init(values);
//   state.prepare(values, grad);  ...  state.update(values, grad);          // in each step
//
// One owner, one thread. Failures are thrown.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "ddh/sdk/optim/optim_state.hpp"
#include "ddh/sdk/tier/file_tier.hpp"
#include "ddh/sdk/tier/memory_tier.hpp"
#include "ddh/sdk/tier/tile_plan.hpp"
#include "ddh/sdk/tier/upload_buffers.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class OffloadedState {
 public:
  // Base of a space's segment of values, of the space's dtype; nullptr if the values are offloaded.
  using Values = std::function<void*(size_t space)>;
  // Base of the summed fp32 gradients of a space's segment; nullptr: the step has none.
  using Grad = std::function<const float*(size_t space)>;

  // `layout` outlives this object. `rank`: the index of this rank in the group that shares the spaces.
  OffloadedState(const Host& host, const ModelLayout& layout, int32_t rank, OffloadSettings settings);
  OffloadedState(const OffloadedState&) = delete;
  OffloadedState& operator=(const OffloadedState&) = delete;
  ~OffloadedState();

  // Bytes that materialize allocates: values and state in memory (frames count as state), and files.
  [[nodiscard]] uint64_t value_bytes() const;
  // Bytes of the buffer that a fetch of a space takes until it is finished: on a device with memory of its own, files are
  // read into pinned memory.
  [[nodiscard]] uint64_t upload_bytes(size_t space) const;
  [[nodiscard]] uint64_t state_bytes() const;
  // Of state_bytes: in pinned memory.
  [[nodiscard]] uint64_t pinned_state_bytes() const;
  [[nodiscard]] uint64_t file_bytes() const;
  void materialize();

  // Sets initial values and masters.
  void init(const Values& values);
  // Called before update, with the same arguments. Makes a pass over the tiles if the optimizer needs norms of whole
  // parameters; else does nothing.
  void prepare(const Values& values, const Grad& grad);
  // Phase 2 of a step, over all segments that have a gradient.
  void update(const Values& values, const Grad& grad);
  // Gives up the slots that the optimizer does not use any more (Strategy::trains_later). A file keeps their place.
  void free_unused();
  // A load has written the masters: updates the values.
  void refresh(const Values& values);

  // Reads a segment's values to `dst`, which is aligned to Tier::kAlignment and has space up to the next such boundary.
  // After finish_fetch, work on the default stream can use the values.
  void begin_fetch(size_t space, void* dst);
  void finish_fetch(size_t space);

  // Appends the entries of one segment: values or masters, then slots. `values`: base of the segment's values, unless
  // they are offloaded. Entries of data in files have no pointer. forget_entries begins a new list.
  void append_state_entries(std::vector<ddh_state_entry>& out, size_t space, void* values);
  void forget_entries() { entries_.clear(); }
  // Reads elements of an entry in a file into `dst`, or writes them from `src` if dst is nullptr. Error: no such entry.
  void copy_entry(uint32_t entry, uint64_t offset, uint64_t numel, void* dst, const void* src);

  [[nodiscard]] Tier::Traffic file_traffic() const { return files_ ? files_->traffic() : Tier::Traffic{}; }
  [[nodiscard]] Tier::Traffic memory_traffic() const { return memory_ ? memory_->traffic() : Tier::Traffic{}; }

 private:
  enum class Pass { init, prepare, update, refresh };
  using Tile = TilePlan::Tile;
  struct Held;    // data of a space on tiers and in memory
  struct Arrays;  // a tile in memory
  struct Kind;    // of a state entry
  struct AwayEntry {
    size_t tensor;
    uint64_t first_byte;  // in the tensor
    uint64_t element_bytes, tile_bytes;
  };
  using Work = std::function<void(const Tile& tile, const Arrays& arrays)>;

  void add_tensors();
  Tier* tier_of(Place place);
  // Whether values or state are there.
  [[nodiscard]] bool uses(Place place) const;
  void run(Pass pass, const std::vector<const Tile*>& tiles, const Values& values, const Work& work);
  std::vector<TilePart> parts_of(const Tile& tile, Pass pass, void* segment_values);
  void run_optimizer(Pass pass, const Values& values, const Grad& grad);
  void round_masters(const Tile& tile, const Arrays& arrays) const;
  void zero_gaps(const Tile& tile, const std::vector<ddh_range>& pieces, void* values) const;
  void append_away_slot(std::vector<ddh_state_entry>& out, size_t space, int32_t array, size_t tensor);
  void append_away(std::vector<ddh_state_entry>& out, size_t space, const Kind& kind, Place place, size_t tensor);

  const Host& host_;
  TilePlan plan_;
  std::vector<Held> held_;                  // per space
  std::map<uint32_t, AwayEntry> entries_;   // of the last list: entries in files
  TileFrames frames_;                       // declared before the tiers, whose transfers use it until their end
  std::unique_ptr<UploadBuffers> uploads_;  // the same; of values in files; nullptr: files are read into the views
  std::unique_ptr<FileTier> files_;
  std::unique_ptr<MemoryTier> memory_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
