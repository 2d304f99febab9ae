// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/offloaded_state.hpp: masters and optimizer slots of this rank's segments, some of them on a tier, and the update
// that goes over them tile by tile: while one tile is updated, the next is read and the last one written.
//
// Masters are offloaded all or not at all. Of the slots, the first `ratio` of all segments' elements is offloaded, in
// whole tiles; the rest stays on the device. All is fp32.
#pragma once

#include <map>
#include <memory>

#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/tier/file_tier.hpp"
#include "ddh/sdk/tier/memory_tier.hpp"
#include "ddh/sdk/tier/tile_pipeline.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

enum class Place { device, cpu, nvme };

struct OffloadSettings {
  Place masters = Place::device, slots = Place::device;
  double ratio = 1.0;  // of the slots
  uint64_t tile_bytes = 0;
  uint32_t frames = 3;
  std::string folder, folder_option, io;
};

class OffloadedState {
 public:
  OffloadedState(const Host& host, const ModelLayout& layout, int32_t rank, OffloadSettings settings)
      : host_(host), layout_(layout), rank_(rank), n_slots_(slots_of(host)), settings_(std::move(settings)) {
    uint64_t longest = 1;
    for (const FlatSpace& space : layout.spaces) longest = std::max(longest, space.value_segment_bytes(rank));
    tile_bytes_ = std::min(settings_.tile_bytes, Tier::round_up(longest));
    cut_into_tiles();
    const uint32_t n_tiered = (masters_away() ? 1 : 0) + (slots_away() ? n_slots_ : 0);
    const size_t n_frames = std::clamp<size_t>(tiles_.size(), 1, settings_.frames);
    frames_ = TileFrames(static_cast<uint32_t>(n_frames), n_tiered, tile_bytes_);
  }
  OffloadedState(const OffloadedState&) = delete;
  OffloadedState& operator=(const OffloadedState&) = delete;

  // Bytes that materialize takes: of masters and slots in memory (frames are among the slots), and on files.
  [[nodiscard]] uint64_t master_bytes() const { return settings_.masters == Place::cpu ? away_bytes(true, false) : 0; }
  [[nodiscard]] uint64_t slot_bytes() const {
    uint64_t bytes = frames_.bytes() + (settings_.slots == Place::cpu ? away_bytes(false, true) : 0);
    for (const Space& s : spaces_) bytes += (s.trained ? s.numel - s.away_numel : 0) * n_slots_ * sizeof(float);
    return bytes;
  }
  [[nodiscard]] uint64_t file_bytes() const {
    return away_bytes(settings_.masters == Place::nvme, settings_.slots == Place::nvme);
  }

  void materialize() {
    add_tensors();
    frames_.materialize(host_, DDH_TAG_OPTIM, files_ ? DDH_MEM_PINNED : DDH_MEM_DEVICE);
    if (memory_) memory_->reserve();
    if (!files_) return;
    files_->reserve();
    files_->register_buffers(frames_.registrable());
    host_.log(DDH_LOG_INFO, file_bytes(), " bytes of states are in '", settings_.folder, "', by ", files_->io_name(),
              files_->is_direct() ? ", O_DIRECT" : "", ", in tiles of ", tile_bytes_, " bytes, ", frames_.frames(),
              " at a time");
  }

  // First values of the masters, where they are away.
  void init_masters() {
    run_tiles(
        frames_, tiles_.size(), [&](size_t i) { return std::vector<TilePart>{master_part(tiles_[i], nullptr)}; },
        [&](size_t i, const std::vector<float*>& memory) {
          for (const ddh_range& r : ranges_of(tiles_[i]))
            call(host_.params->init_range, host_.h, r.param, r.param_offset, r.numel, memory[0] + r.flat_offset);
        });
  }

  // Reads a segment's masters to `dst`, which lies on Tier::kAlignment and has room up to the next such boundary.
  void begin_fetch(size_t space, float* dst) {
    const uint64_t n_tiles = (spaces_[space].numel + tile_numel() - 1) / tile_numel();
    for (uint64_t t = 0; t < n_tiles; ++t) {
      spaces_[space].fetches.push_back(
          tier_of(settings_.masters)->begin_read(spaces_[space].master, t, dst + t * tile_numel()));
    }
  }
  void finish_fetch(size_t space) {
    for (const Tier::Handle h : std::exchange(spaces_[space].fetches, {})) tier_of(settings_.masters)->wait(h);
  }

  // Phase 2 of a step, over all segments that have a gradient. `master(space)`, `grad(space)`: base of the segment, or
  // nullptr: masters that are away, no gradient in this step.
  template <class Master, class Grad>
  void update(Master&& master, Grad&& grad) {
    const Span span(host_, DDH_SPAN_OPTIM, "offloaded update");
    std::vector<const Tile*> active;
    for (const Tile& tile : tiles_)
      if (grad(tile.space) != nullptr) active.push_back(&tile);
    run_tiles(
        frames_, active.size(), [&](size_t i) { return parts_of(*active[i], master(active[i]->space)); },
        [&](size_t i, const std::vector<float*>& memory) {
          update_tile(*active[i], memory, grad(active[i]->space) + active[i]->first);
        });
  }

  // Entries of one segment's slots, and of its masters where they are away.
  void append_state_entries(std::vector<ddh_state_entry>& out, size_t space) {
    const Space& s = spaces_[space];
    if (masters_away()) append_away(out, space, DDH_STATE_PARAM, 0, tier_of(settings_.masters), s.master, s.numel);
    for (uint32_t i = 0; i < n_slots_ && s.trained; ++i) {
      if (s.away_numel > 0)
        append_away(out, space, DDH_STATE_SLOT, static_cast<int32_t>(i), tier_of(settings_.slots), s.slots[i],
                    s.away_numel);
      if (s.away_numel < s.numel)
        append_state(out, ranges(space, s.away_numel, s.numel - s.away_numel), DDH_STATE_SLOT, static_cast<int32_t>(i),
                     DDH_F32, s.resident[i].data(), {});
    }
  }
  // Before the first append_state_entries of a list.
  void forget_entries() { entries_.clear(); }

  // Elements of an entry on a file, read into dst, or written from src where dst is nullptr.
  void copy_entry(uint32_t entry, uint64_t offset, uint64_t numel, void* dst, const void* src) {
    const auto at = entries_.find(entry);
    if (at == entries_.end()) fail(DDH_INVALID_ARGUMENT, "state entry ", entry, " has a pointer; use it");
    auto* const buffer = reinterpret_cast<char*>(frames_.buffer(0, 0));
    const uint64_t begin = (at->second.first + offset) * sizeof(float), end = begin + numel * sizeof(float);
    for (uint64_t byte = begin; byte < end;) {
      const uint64_t tile = byte / tile_bytes_, inside = byte % tile_bytes_;
      const uint64_t bytes = std::min(tile_bytes_ - inside, end - byte);
      files_->wait(files_->begin_read(at->second.tensor, tile, buffer));
      if (dst != nullptr) {
        std::memcpy(static_cast<char*>(dst) + (byte - begin), buffer + inside, bytes);
      } else {
        std::memcpy(buffer + inside, static_cast<const char*>(src) + (byte - begin), bytes);
        files_->wait(files_->begin_write(at->second.tensor, tile, buffer));
      }
      byte += bytes;
    }
  }

  [[nodiscard]] Tier::Traffic file_traffic() const { return files_ ? files_->traffic() : Tier::Traffic{}; }
  [[nodiscard]] Tier::Traffic memory_traffic() const { return memory_ ? memory_->traffic() : Tier::Traffic{}; }

 private:
  struct Space {
    bool trained;
    uint64_t numel;           // of this rank's segment
    uint64_t away_numel = 0;  // of the slots: the first ones
    size_t master = 0;        // tensors of the tiers
    std::vector<size_t> slots;
    std::vector<Buffer> resident;  // per slot: what stays
    std::vector<Tier::Handle> fetches;
  };
  struct Tile {
    size_t space;
    uint64_t index, first, numel;
  };
  struct AwayEntry {
    size_t tensor;
    uint64_t first;  // element of the tensor
  };

  static uint32_t slots_of(const Host& host) {
    FlatSpace one;
    one.trained_by = 1;
    one.params.push_back({0, 0, 1});
    return static_cast<uint32_t>(OptimState::bytes(host, one, 1) / sizeof(float));  // refuses slots of other kinds
  }
  [[nodiscard]] bool masters_away() const { return settings_.masters != Place::device; }
  [[nodiscard]] bool slots_away() const { return settings_.slots != Place::device; }
  [[nodiscard]] uint64_t tile_numel() const { return tile_bytes_ / sizeof(float); }
  Tier* tier_of(Place place) {
    return place == Place::nvme ? static_cast<Tier*>(files_.get()) : static_cast<Tier*>(memory_.get());
  }
  [[nodiscard]] std::vector<ddh_range> ranges(size_t space, uint64_t first, uint64_t numel) const {
    const FlatSpace& s = layout_.spaces[space];
    return s.ranges(s.cut.segment_offset[static_cast<size_t>(rank_)] + first, numel);
  }
  [[nodiscard]] std::vector<ddh_range> ranges_of(const Tile& t) const { return ranges(t.space, t.first, t.numel); }

  void cut_into_tiles() {
    uint64_t trained_numel = 0, away_numel = 0;
    for (const FlatSpace& space : layout_.spaces) {
      spaces_.push_back({space.trained(), space.segment_numel(rank_), 0, 0, {}, {}, {}});
      if (space.trained()) trained_numel += spaces_.back().numel;
    }
    const double wanted = slots_away() ? settings_.ratio * static_cast<double>(trained_numel) : 0.0;
    for (size_t s = 0; s < spaces_.size(); ++s) {
      for (uint64_t first = 0; first < spaces_[s].numel; first += tile_numel()) {
        const uint64_t numel = std::min(tile_numel(), spaces_[s].numel - first);
        tiles_.push_back({s, first / tile_numel(), first, numel});
        if (!spaces_[s].trained || static_cast<double>(away_numel) >= wanted) continue;
        spaces_[s].away_numel += numel;
        away_numel += numel;
      }
    }
  }
  [[nodiscard]] uint64_t away_bytes(bool masters, bool slots) const {
    uint64_t numel = 0;
    for (const Space& s : spaces_) numel += (masters ? s.numel : 0) + (slots ? s.away_numel * n_slots_ : 0);
    return numel * sizeof(float);
  }

  void add_tensors() {
    if (settings_.masters == Place::nvme || settings_.slots == Place::nvme) {
      files_ = std::make_unique<FileTier>(
          host_,
          FileTierSettings{settings_.folder, settings_.folder_option, tile_bytes_, kTransfersUnderWay,
                           [this](int fd, uint32_t depth) { return make_io_engine(host_, settings_.io, fd, depth); }});
    }
    if (settings_.masters == Place::cpu || settings_.slots == Place::cpu)
      memory_ = std::make_unique<MemoryTier>(host_, tile_bytes_);
    for (size_t s = 0; s < spaces_.size(); ++s) {
      Space& space = spaces_[s];
      const std::string& name = layout_.spaces[s].name;
      if (masters_away())
        space.master =
            tier_of(settings_.masters)->add(str("parameters of ", name), DDH_TAG_PARAM, space.numel * sizeof(float));
      for (uint32_t i = 0; i < n_slots_ && space.trained; ++i) {
        const std::string what = str("optimizer slot ", i, " of ", name);
        if (space.away_numel > 0)
          space.slots.push_back(tier_of(settings_.slots)->add(what, DDH_TAG_OPTIM, space.away_numel * sizeof(float)));
        space.resident.emplace_back();
        if (space.away_numel < space.numel)
          space.resident.back() = Buffer(host_, DDH_TAG_OPTIM, (space.numel - space.away_numel) * sizeof(float), what);
      }
    }
  }

  TilePart master_part(const Tile& tile, float* base) {
    if (masters_away()) return {tier_of(settings_.masters), spaces_[tile.space].master, tile.index, nullptr};
    return {nullptr, 0, 0, base + tile.first};
  }
  // Parts on tiers first: master, slots; or slots, master.
  std::vector<TilePart> parts_of(const Tile& tile, float* master) {
    const Space& s = spaces_[tile.space];
    std::vector<TilePart> out;
    if (masters_away()) out.push_back(master_part(tile, nullptr));
    for (uint32_t i = 0; i < n_slots_; ++i) {
      if (tile.first < s.away_numel)
        out.push_back({tier_of(settings_.slots), s.slots[i], tile.index, nullptr});
      else
        out.push_back({nullptr, 0, 0, s.resident[i].f32() + (tile.first - s.away_numel)});
    }
    if (!masters_away()) out.push_back(master_part(tile, master));
    return out;
  }
  void update_tile(const Tile& tile, const std::vector<float*>& memory, const float* grad) {
    const std::vector<ddh_range> pieces = ranges_of(tile);
    const size_t first_slot = masters_away() ? 1 : 0;
    std::vector<void*> slots(memory.begin() + static_cast<std::ptrdiff_t>(first_slot),
                             memory.begin() + static_cast<std::ptrdiff_t>(first_slot + n_slots_));
    ddh_optim_shard shard{};
    shard.struct_size = sizeof shard;
    shard.n_ranges = static_cast<uint32_t>(pieces.size());
    shard.ranges = pieces.data();
    shard.master = masters_away() ? memory.front() : memory.back();
    shard.n_grads = 1;
    shard.grads = &grad;
    shard.slots = slots.data();
    shard.n_slots = n_slots_;
    call(host_.optim->update, host_.h, &shard, nullptr);
  }

  void append_away(std::vector<ddh_state_entry>& out, size_t space, int32_t kind, int32_t slot, Tier* tier,
                   size_t tensor, uint64_t numel) {
    if (float* const base = tier->memory(tensor)) {
      for (const ddh_range& r : ranges(space, 0, numel))
        out.push_back({sizeof(ddh_state_entry), r.param, kind, slot, DDH_F32, DDH_MEM_PINNED, r.param_offset, r.numel,
                       base + r.flat_offset, 0, 1});
      return;
    }
    for (const ddh_range& r : ranges(space, 0, numel)) {
      entries_[static_cast<uint32_t>(out.size())] = {tensor, r.flat_offset};
      out.push_back({sizeof(ddh_state_entry), r.param, kind, slot, DDH_F32, DDH_MEM_FILE, r.param_offset, r.numel,
                     nullptr, 0, 1});
    }
  }

  static constexpr uint32_t kTransfersUnderWay = 64;

  const Host& host_;
  const ModelLayout& layout_;
  const int32_t rank_;
  const uint32_t n_slots_;
  const OffloadSettings settings_;
  uint64_t tile_bytes_ = 0;
  std::vector<Space> spaces_;
  std::vector<Tile> tiles_;                // of all segments, in order
  std::map<uint32_t, AwayEntry> entries_;  // of the last state list: those on files
  TileFrames frames_;                      // before the tiers, which may still move bytes in and out at the end
  std::unique_ptr<FileTier> files_;
  std::unique_ptr<MemoryTier> memory_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
