// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/offloaded_state.hpp: values and optimizer state of this rank's segments, some of them on a tier, and the
// update that goes over them tile by tile: while one tile is updated, the next is read and the last one written.
//
// Values are what units see, of the space's dtype. State is fp32: the optimizer's slots, and where values are of a low
// precision their masters. Values are offloaded all or not at all; of the state, the first `ratio` of all segments'
// elements is, in whole tiles, and the rest stays on the device.
//
// A tile has the same elements of every array. In a space whose parameters stay whole it is the whole segment.
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
  Place values = Place::device, state = Place::device;
  double ratio = 1.0;  // of the state
  uint64_t tile_bytes = 0;
  uint32_t frames = 3;
  TileOverlap overlap;
  uint64_t values_in_memory =
      0;  // with values on nvme: so many elements stay in pinned memory: segments in order, those that still fit
  std::string folder, folder_option, io;
};

class OffloadedState {
 public:
  OffloadedState(const Host& host, const ModelLayout& layout, int32_t rank, OffloadSettings settings)
      : host_(host),
        layout_(layout),
        rank_(rank),
        n_slots_(host.optim->slot_count(host.h)),
        settings_(std::move(settings)) {
    list_spaces();
    place_values();
    cut_into_tiles();
    size_t n_arrays = 0;
    for (const Space& s : spaces_) n_arrays = std::max(n_arrays, s.arrays.size());
    const size_t n_tiered = (values_away() ? 1 : 0) + (state_away() ? n_arrays : 0);
    const size_t n_frames = std::clamp<size_t>(tiles_.size(), 1, settings_.frames);
    frames_ =
        TileFrames(static_cast<uint32_t>(n_frames), static_cast<uint32_t>(n_tiered), frame_bytes_, settings_.overlap);
  }
  OffloadedState(const OffloadedState&) = delete;
  OffloadedState& operator=(const OffloadedState&) = delete;

  // Bytes that materialize takes: of values and state in memory (frames are among the state), and on files.
  [[nodiscard]] uint64_t value_bytes() const { return value_bytes_on(Place::cpu); }
  [[nodiscard]] uint64_t state_bytes() const {
    uint64_t bytes = frames_.bytes() + state_bytes_on(Place::cpu);
    for (const Space& s : spaces_) bytes += (s.numel - s.away_numel) * s.arrays.size() * sizeof(float);
    return bytes;
  }
  [[nodiscard]] uint64_t file_bytes() const { return value_bytes_on(Place::nvme) + state_bytes_on(Place::nvme); }

  void materialize() {
    add_tensors();
    frames_.materialize(host_, DDH_TAG_OPTIM, files_ ? DDH_MEM_PINNED : DDH_MEM_DEVICE);
    if (memory_) memory_->reserve();
    if (!files_) return;
    if (files_->file_bytes() != file_bytes())
      fail(DDH_INTERNAL, "the file takes ", files_->file_bytes(), " bytes, and ", file_bytes(), " were planned");
    files_->reserve();
    files_->register_buffers(frames_.registrable());
    host_.log(DDH_LOG_INFO, file_bytes(), " bytes of states are in '", settings_.folder, "', by ", files_->io_name(),
              files_->is_direct() ? ", O_DIRECT" : "", ", in tiles of ", frame_bytes_, " bytes, ", frames_.frames(),
              " at a time");
  }

  // First values. `values(space)`, here and below: base of the segment's values, or nullptr where they are away.
  template <class Values>
  void init(Values&& values) {
    run(Pass::init, every_tile(), values, [&](const Tile& tile, const Arrays& a) {
      const Space& s = spaces_[tile.space];
      for (const ddh_range& r : ranges_of(tile)) {
        if (s.is_low && !s.trained) {
          init_rounded(host_, r, s.dtype, a.values);
          continue;
        }
        float* const to = (s.is_low ? a.state[0] : static_cast<float*>(a.values)) + r.flat_offset;
        call(host_.params->init_range, host_.h, r.param, r.param_offset, r.numel, to);
      }
      round_masters(tile, a);
    });
  }

  // Reads a segment's values to `dst`, which lies on Tier::kAlignment and has room up to the next such boundary.
  void begin_fetch(size_t space, void* dst) {
    Space& s = spaces_[space];
    const uint64_t tile_bytes = s.tile_numel * ddh_dtype_bytes(s.dtype);
    for (uint64_t first = 0; first < s.numel; first += s.tile_numel) {
      const uint64_t t = first / s.tile_numel;
      s.fetches.push_back(tier_of(s.place)->begin_read(s.values, t, static_cast<char*>(dst) + t * tile_bytes));
    }
  }
  void finish_fetch(size_t space) {
    Space& s = spaces_[space];
    for (const Tier::Handle h : std::exchange(s.fetches, {})) tier_of(s.place)->wait(h);
  }

  // Before an update, with the same arguments, where the optimizer needs norms of whole parameters: a pass of its own
  // over the tiles. Without that need nothing.
  template <class Values, class Grad>
  void prepare(Values&& values, Grad&& grad) {
    if (!needs_norms()) return;
    const Span span(host_, DDH_SPAN_OPTIM, "offloaded norms");
    run(Pass::prepare, tiles_with(grad), values, [&](const Tile& tile, const Arrays& a) {
      const float* const gradient = grad(tile.space) + tile.first;
      const std::vector<ddh_range> pieces = ranges_of(tile);
      const ddh_optim_shard shard = shard_of(tile, pieces, a, &gradient);
      call(host_.optim->prepare, host_.h, &shard, 0, 1, nullptr);
    });
  }

  // Phase 2 of a step, over all segments that have a gradient (`grad(space)` is not nullptr).
  template <class Values, class Grad>
  void update(Values&& values, Grad&& grad) {
    const Span span(host_, DDH_SPAN_OPTIM, "offloaded update");
    run(Pass::update, tiles_with(grad), values, [&](const Tile& tile, const Arrays& a) {
      const float* const gradient = grad(tile.space) + tile.first;
      const std::vector<ddh_range> pieces = ranges_of(tile);
      const ddh_optim_shard shard = shard_of(tile, pieces, a, &gradient);
      if (shard.lowp != nullptr && values_away()) zero_gaps(tile, pieces, a.values);
      call(host_.optim->update, host_.h, &shard, nullptr);
    });
  }

  // Masters were written from outside (a load): the values follow.
  template <class Values>
  void refresh(Values&& values) {
    std::vector<const Tile*> with_master;
    for (const Tile& tile : tiles_)
      if (has_master(spaces_[tile.space])) with_master.push_back(&tile);
    run(Pass::refresh, with_master, values, [&](const Tile& tile, const Arrays& a) {
      if (values_away()) zero_gaps(tile, ranges_of(tile), a.values);
      round_masters(tile, a);
    });
  }

  // Entries of one segment: fp32 values or masters, and slots. `values`: base of the segment's, unless they are away.
  void append_state_entries(std::vector<ddh_state_entry>& out, size_t space, void* values) {
    const Space& s = spaces_[space];
    if (!has_master(s) && values_away())
      append_away(out, space, {DDH_STATE_PARAM, 0, s.dtype}, tier_of(s.place), s.values, s.numel);
    else if (!has_master(s))
      append_state(out, ranges(space, 0, s.numel), DDH_STATE_PARAM, 0, s.dtype, values, {});
    for (size_t i = 0; i < s.arrays.size(); ++i) {
      const bool is_master = s.arrays[i] == kMaster;
      const Kind kind{is_master ? DDH_STATE_PARAM : DDH_STATE_SLOT, is_master ? 0 : s.arrays[i], DDH_F32};
      if (s.away_numel > 0) append_away(out, space, kind, tier_of(settings_.state), s.tensors[i], s.away_numel);
      if (s.away_numel < s.numel)
        append_state(out, ranges(space, s.away_numel, s.numel - s.away_numel), kind.kind, kind.slot, DDH_F32,
                     s.resident[i].data(), {});
    }
  }
  // Before the first append_state_entries of a list.
  void forget_entries() { entries_.clear(); }

  // Elements of an entry on a file, read into dst, or written from src where dst is nullptr.
  void copy_entry(uint32_t entry, uint64_t offset, uint64_t numel, void* dst, const void* src) {
    const auto at = entries_.find(entry);
    if (at == entries_.end()) fail(DDH_INVALID_ARGUMENT, "state entry ", entry, " has a pointer; use it");
    const AwayEntry& e = at->second;
    auto* const buffer = reinterpret_cast<char*>(frames_.buffer(0, 0));
    const uint64_t begin = (e.first + offset) * e.element_bytes, end = begin + numel * e.element_bytes;
    for (uint64_t byte = begin; byte < end;) {
      const uint64_t tile = byte / e.tile_bytes, inside = byte % e.tile_bytes;
      const uint64_t bytes = std::min(e.tile_bytes - inside, end - byte);
      files_->wait(files_->begin_read(e.tensor, tile, buffer));
      if (dst != nullptr) {
        std::memcpy(static_cast<char*>(dst) + (byte - begin), buffer + inside, bytes);
      } else {
        std::memcpy(buffer + inside, static_cast<const char*>(src) + (byte - begin), bytes);
        files_->wait(files_->begin_write(e.tensor, tile, buffer));
      }
      byte += bytes;
    }
  }

  [[nodiscard]] Tier::Traffic file_traffic() const { return files_ ? files_->traffic() : Tier::Traffic{}; }
  [[nodiscard]] Tier::Traffic memory_traffic() const { return memory_ ? memory_->traffic() : Tier::Traffic{}; }

 private:
  static constexpr int32_t kMaster = -1;
  enum class Pass { init, prepare, update, refresh };

  struct Space {
    bool trained, is_low;
    int32_t dtype;                 // of the values
    uint64_t numel;                // of this rank's segment
    uint64_t tile_numel = 0;       // of each tile but the last
    uint64_t away_numel = 0;       // of the state: the first ones
    std::vector<int32_t> arrays;   // of the state: kMaster, where there is one, and the slots that are used
    Place place = Place::device;   // of the values
    size_t values = 0;             // tensors of the tiers
    std::vector<size_t> tensors;   // per array
    std::vector<Buffer> resident;  // per array: what stays
    std::vector<Tier::Handle> fetches;
  };
  struct Tile {
    size_t space;
    uint64_t index, first, numel;
  };
  // A tile in memory.
  struct Arrays {
    void* values;
    std::vector<float*> state;
  };
  struct Kind {
    int32_t kind, slot, dtype;
  };
  struct AwayEntry {
    size_t tensor;
    uint64_t first;  // element of the tensor
    uint64_t element_bytes, tile_bytes;
  };

  [[nodiscard]] bool values_away() const { return settings_.values != Place::device; }
  [[nodiscard]] bool state_away() const { return settings_.state != Place::device; }
  static bool has_master(const Space& s) { return s.trained && s.is_low; }
  [[nodiscard]] bool needs_norms() const {
    for (const FlatSpace& space : layout_.spaces)
      for (const PlacedParam& p : space.params)
        if (host_.optim->needs(host_.h, p.param) == DDH_NEEDS_PARAM_NORM) return true;
    return false;
  }
  Tier* tier_of(Place place) {
    return place == Place::nvme ? static_cast<Tier*>(files_.get()) : static_cast<Tier*>(memory_.get());
  }
  [[nodiscard]] std::vector<ddh_range> ranges(size_t space, uint64_t first, uint64_t numel) const {
    const FlatSpace& s = layout_.spaces[space];
    return s.ranges(s.cut.segment_offset[static_cast<size_t>(rank_)] + first, numel);
  }
  [[nodiscard]] std::vector<ddh_range> ranges_of(const Tile& t) const { return ranges(t.space, t.first, t.numel); }

  void list_spaces() {
    for (const FlatSpace& space : layout_.spaces) {
      Space& s = spaces_.emplace_back();
      s.trained = space.trained();
      s.is_low = space.dtype != DDH_F32;
      s.dtype = space.dtype;
      s.numel = space.segment_numel(rank_);
      if (has_master(s)) s.arrays.push_back(kMaster);
      for (uint32_t i = 0; i < n_slots_ && s.trained; ++i)
        if (OptimState::slot_bytes(host_, space, i) > 0) s.arrays.push_back(static_cast<int32_t>(i));
    }
  }

  void place_values() {
    uint64_t room = settings_.values_in_memory;
    for (Space& s : spaces_) {
      s.place = settings_.values;
      if (s.place != Place::nvme || s.numel > room) continue;
      s.place = Place::cpu;
      room -= s.numel;
    }
  }

  // A tile of values, the smallest dtype, is a multiple of Tier::kAlignment too.
  void cut_into_tiles() {
    uint64_t smallest = sizeof(float), longest = 1, trained_numel = 0, away_numel = 0;
    for (const Space& s : spaces_) {
      smallest = std::min<uint64_t>(smallest, ddh_dtype_bytes(s.dtype));
      longest = std::max(longest, s.numel);
      if (s.trained) trained_numel += s.numel;
    }
    const uint64_t grain = Tier::kAlignment / smallest;
    const auto round_up = [grain](uint64_t numel) { return (numel + grain - 1) / grain * grain; };
    const uint64_t cut = round_up(std::min(settings_.tile_bytes / sizeof(float), longest));
    const double wanted = state_away() ? settings_.ratio * static_cast<double>(trained_numel) : 0.0;
    for (size_t i = 0; i < spaces_.size(); ++i) {
      Space& s = spaces_[i];
      s.tile_numel = layout_.spaces[i].whole ? std::max(grain, round_up(s.numel)) : cut;
      frame_bytes_ = std::max(frame_bytes_, s.tile_numel * sizeof(float));
      for (uint64_t first = 0; first < s.numel; first += s.tile_numel) {
        const uint64_t numel = std::min(s.tile_numel, s.numel - first);
        tiles_.push_back({i, first / s.tile_numel, first, numel});
        if (!s.trained || static_cast<double>(away_numel) >= wanted) continue;
        s.away_numel += numel;
        away_numel += numel;
      }
    }
  }
  // Of a tensor on a tier.
  static uint64_t room(Place place, uint64_t bytes) { return place == Place::nvme ? Tier::round_up(bytes) : bytes; }
  [[nodiscard]] uint64_t value_bytes_on(Place place) const {
    uint64_t bytes = 0;
    for (const Space& s : spaces_) bytes += s.place == place ? room(place, s.numel * ddh_dtype_bytes(s.dtype)) : 0;
    return bytes;
  }
  [[nodiscard]] uint64_t state_bytes_on(Place place) const {
    uint64_t bytes = 0;
    for (const Space& s : spaces_) bytes += s.arrays.size() * room(place, s.away_numel * sizeof(float));
    return settings_.state == place ? bytes : 0;
  }

  void add_tensors() {
    const auto uses = [&](Place place) {
      const auto has_values = [place](const Space& s) { return s.place == place; };
      return settings_.state == place || std::any_of(spaces_.begin(), spaces_.end(), has_values);
    };
    if (uses(Place::nvme)) {
      files_ = std::make_unique<FileTier>(
          host_,
          FileTierSettings{settings_.folder, settings_.folder_option, frame_bytes_, kTransfersUnderWay, rank_ == 0,
                           [this](int fd, uint32_t depth) { return make_io_engine(host_, settings_.io, fd, depth); }});
    }
    if (uses(Place::cpu)) memory_ = std::make_unique<MemoryTier>(host_, frame_bytes_);
    for (size_t i = 0; i < spaces_.size(); ++i) {
      Space& s = spaces_[i];
      const std::string& name = layout_.spaces[i].name;
      const uint64_t value_bytes = ddh_dtype_bytes(s.dtype);
      if (values_away())
        s.values = tier_of(s.place)->add_cut(str("parameters of ", name), DDH_TAG_PARAM, s.numel * value_bytes,
                                             s.tile_numel * value_bytes);
      for (const int32_t array : s.arrays) {
        const std::string what =
            array == kMaster ? str("master of ", name) : str("optimizer slot ", array, " of ", name);
        if (s.away_numel > 0)
          s.tensors.push_back(
              tier_of(settings_.state)
                  ->add_cut(what, DDH_TAG_OPTIM, s.away_numel * sizeof(float), s.tile_numel * sizeof(float)));
        s.resident.emplace_back();
        if (s.away_numel < s.numel)
          s.resident.back() = Buffer(host_, DDH_TAG_OPTIM, (s.numel - s.away_numel) * sizeof(float), what);
      }
    }
  }

  // ---- Tiles -----------------------------------------------------------------------------------------------------------

  [[nodiscard]] std::vector<const Tile*> every_tile() const {
    std::vector<const Tile*> out;
    for (const Tile& tile : tiles_) out.push_back(&tile);
    return out;
  }
  template <class Grad>
  std::vector<const Tile*> tiles_with(Grad&& grad) const {
    std::vector<const Tile*> out;
    for (const Tile& tile : tiles_)
      if (grad(tile.space) != nullptr) out.push_back(&tile);
    return out;
  }

  template <class Values, class Work>
  void run(Pass pass, const std::vector<const Tile*>& tiles, Values&& values, Work&& work) {
    run_tiles(
        frames_, tiles.size(), [&](size_t i) { return parts_of(*tiles[i], pass, values(tiles[i]->space)); },
        [&](size_t i, const std::vector<float*>& memory) {
          const auto state = memory.begin() + (values_away() ? 1 : 0);
          const auto n = static_cast<std::ptrdiff_t>(spaces_[tiles[i]->space].arrays.size());
          work(*tiles[i], Arrays{values_away() ? memory.front() : memory.back(), {state, state + n}});
        });
  }

  // Parts on tiers first: values, state; or state, values. Masters give the values of a low precision, and what needs
  // neither stays where it is.
  std::vector<TilePart> parts_of(const Tile& tile, Pass pass, void* segment_values) {
    const Space& s = spaces_[tile.space];
    const bool updates = pass == Pass::prepare || pass == Pass::update;
    const bool values_are_read = pass == Pass::init || (updates && !s.is_low);
    TilePart values{values_away() ? tier_of(s.place) : nullptr,
                    s.values,
                    tile.index,
                    nullptr,
                    values_are_read,
                    pass != Pass::prepare};
    if (!values_away())
      values.resident =
          reinterpret_cast<float*>(static_cast<char*>(segment_values) + tile.first * ddh_dtype_bytes(s.dtype));
    std::vector<TilePart> out;
    if (values_away()) out.push_back(values);
    for (size_t i = 0; i < s.arrays.size(); ++i) {
      const bool is_master = s.arrays[i] == kMaster;
      const bool is_written =
          pass == Pass::update || (pass == Pass::prepare && !is_master) || (pass == Pass::init && is_master);
      if (tile.first < s.away_numel)
        out.push_back({tier_of(settings_.state), s.tensors[i], tile.index, nullptr, updates || is_master, is_written});
      else
        out.push_back({nullptr, 0, 0, s.resident[i].f32() + (tile.first - s.away_numel)});
    }
    if (!values_away()) out.push_back(values);
    return out;
  }

  // As the optimizer gets it; valid as long as its arguments.
  ddh_optim_shard shard_of(const Tile& tile, const std::vector<ddh_range>& pieces, const Arrays& a,
                           const float* const* grad) {
    const Space& s = spaces_[tile.space];
    slots_.assign(n_slots_, nullptr);
    for (size_t i = 0; i < s.arrays.size(); ++i)
      if (s.arrays[i] != kMaster) slots_[static_cast<size_t>(s.arrays[i])] = a.state[i];
    ddh_optim_shard shard{};
    shard.struct_size = sizeof shard;
    shard.n_ranges = static_cast<uint32_t>(pieces.size());
    shard.ranges = pieces.data();
    shard.master = s.is_low ? a.state[0] : static_cast<float*>(a.values);
    if (s.is_low) {
      shard.lowp = a.values;
      shard.lowp_dtype = s.dtype;
    }
    shard.n_grads = 1;
    shard.grads = grad;
    shard.slots = slots_.data();
    shard.n_slots = n_slots_;
    return shard;
  }

  static void* at(void* values, int32_t dtype, uint64_t offset) {
    return static_cast<char*>(values) + offset * ddh_dtype_bytes(dtype);
  }
  void cast(void* to, int32_t dtype, const float* from, uint64_t numel) const {
    call(host_.flatops->cast, host_.h, to, dtype, from, DDH_F32, numel, nullptr);
  }
  void round_masters(const Tile& tile, const Arrays& a) const {
    const Space& s = spaces_[tile.space];
    if (!has_master(s)) return;
    for (const ddh_range& r : ranges_of(tile))
      cast(at(a.values, s.dtype, r.flat_offset), s.dtype, a.state[0] + r.flat_offset, r.numel);
  }
  // A buffer that was not read holds another tile's values where this one has padding.
  void zero_gaps(const Tile& tile, const std::vector<ddh_range>& pieces, void* values) const {
    const int32_t dtype = spaces_[tile.space].dtype;
    uint64_t end = 0;
    const auto fill = [&](uint64_t next) {
      if (next > end) call(host_.flatops->fill, host_.h, at(values, dtype, end), dtype, next - end, 0.0, nullptr);
    };
    for (const ddh_range& r : pieces) {
      fill(r.flat_offset);
      end = r.flat_offset + r.numel;
    }
    fill(tile.numel);
  }

  void append_away(std::vector<ddh_state_entry>& out, size_t space, const Kind& kind, Tier* tier, size_t tensor,
                   uint64_t numel) {
    void* const base = tier->memory(tensor);
    const uint64_t bytes = ddh_dtype_bytes(kind.dtype);
    for (const ddh_range& r : ranges(space, 0, numel)) {
      if (base == nullptr)
        entries_[static_cast<uint32_t>(out.size())] = {tensor, r.flat_offset, bytes, spaces_[space].tile_numel * bytes};
      out.push_back({sizeof(ddh_state_entry), r.param, kind.kind, kind.slot, kind.dtype,
                     base == nullptr ? DDH_MEM_FILE : DDH_MEM_PINNED, r.param_offset, r.numel,
                     base == nullptr ? nullptr : at(base, kind.dtype, r.flat_offset), 0, 1});
    }
  }

  static constexpr uint32_t kTransfersUnderWay = 64;

  const Host& host_;
  const ModelLayout& layout_;
  const int32_t rank_;
  const uint32_t n_slots_;
  const OffloadSettings settings_;
  uint64_t frame_bytes_ = 0;  // of the largest tile of a fp32 array
  std::vector<Space> spaces_;
  std::vector<Tile> tiles_;                // of all segments, in order
  std::map<uint32_t, AwayEntry> entries_;  // of the last state list: those on files
  std::vector<void*> slots_;               // of the last shard
  TileFrames frames_;                      // before the tiers, which may still move bytes in and out at the end
  std::unique_ptr<FileTier> files_;
  std::unique_ptr<MemoryTier> memory_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
