// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/gathered_params.hpp: parameters of which a rank keeps its segment, and whose full view is open only for a while:
// the prefetching unit window. Which spaces to open and close when is the scheme's policy; this is the mechanism.
//
// Before materialize it opens and closes in numbers only, so that a scheme finds its own peak by running its policy dry.
#pragma once

#include <optional>
#include <set>

#include "ddh/sdk/window.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Another way to full views than through the windows alone; views are copies then.
class ViewSource {
 public:
  ViewSource() = default;
  ViewSource(const ViewSource&) = delete;
  ViewSource& operator=(const ViewSource&) = delete;
  virtual ~ViewSource() = default;
  // It keeps the segments, and there are no windows.
  [[nodiscard]] virtual bool keeps_segments() const = 0;
  // Bytes under DDH_TAG_PARAM that materialize takes.
  [[nodiscard]] virtual uint64_t resting_bytes() const = 0;
  virtual void materialize() = 0;
  // Room that a view of so many bytes takes, and where the view begins in it.
  [[nodiscard]] virtual uint64_t backing_bytes(uint64_t view_bytes) const { return view_bytes; }
  [[nodiscard]] virtual void* view_in(size_t, void* backing) const { return backing; }
  // Fills `view` with a space's full view, or begins to; `window` is the space's, where there are windows. In a dry run
  // both are nullptr. [collective]
  virtual void open(size_t space, Window* window, void* view) = 0;
  // Ends what open has begun, before the view's first use. A view that closes unused is not finished. [collective]
  virtual void finish_open(size_t, void*) {}
  // Before the view goes. [collective]
  virtual void close(size_t space, Window* window, void* view) = 0;
};

// This rank's place in a full view.
inline void* segment_in(const FlatSpace& space, int32_t rank, void* view) {
  return static_cast<char*>(view) + space.cut.segment_offset[static_cast<size_t>(rank)] * ddh_dtype_bytes(space.dtype);
}
// All segments into every rank's full view, in which its own lies in place already. [collective]
inline void gather_segments(const Host& host, ddh_group* group, const FlatSpace& space, int32_t rank, void* view) {
  ddh_coll c{};
  c.struct_size = sizeof c;
  c.dtype = space.dtype;
  c.send = segment_in(space, rank, view);
  c.recv = view;
  c.counts = space.cut.segment_numel.data();
  c.group = group;
  c.label = space.name.c_str();
  call(host.comm->all_gather, host.h, &c);
}

class GatheredParams {
 public:
  GatheredParams() = default;
  // `group` shares the spaces; `rank`: this one's place in it. `source` outlives this object.
  GatheredParams(const Host& host, const ModelLayout& layout, ddh_group* group, int32_t rank,
                 ViewSource* source = nullptr)
      : host_(&host),
        layout_(&layout),
        group_(group),
        rank_(rank),
        source_(source),
        gathers_by_copy_(source != nullptr || (host.window->caps(host.h, group) & DDH_COMM_SHARED_VIEW) == 0) {
    for (const FlatSpace& space : layout.spaces) {
      states_.emplace_back();
      if (opens_in_slot(space)) slot_bytes_ = std::max(slot_bytes_, space.value_bytes());
    }
  }

  // What is there at any time: the segments, full views of persistent spaces, and on a transport that copies a buffer for
  // each shared space.
  [[nodiscard]] uint64_t resting_bytes() const {
    uint64_t bytes = source_ != nullptr ? source_->resting_bytes() : 0;
    for (const FlatSpace& space : layout_->spaces) {
      if (has_windows()) bytes += space.persistent ? space.value_bytes() : space.value_segment_bytes(rank_);
      if (has_own_buffer(space)) bytes += backing_bytes(space.value_bytes());
    }
    return bytes;
  }
  // How often a view was opened that was not there.
  [[nodiscard]] uint64_t opens() const { return opens_; }
  // The most that was open so far beyond resting_bytes.
  [[nodiscard]] uint64_t peak_open_bytes() const { return peak_open_bytes_; }

  void materialize() {
    is_dry_ = false;
    if (source_ != nullptr) source_->materialize();
    for (size_t s = 0; s < states_.size(); ++s) {
      const FlatSpace& space = layout_->spaces[s];
      if (has_windows()) states_[s].window.emplace(*host_, group_, space, space.persistent ? DDH_WINDOW_PERMANENT : 0U);
      if (has_own_buffer(space)) {
        states_[s].own_buffer =
            Buffer(*host_, DDH_TAG_PARAM, backing_bytes(space.value_bytes()), str("gathered ", space.name));
      }
    }
  }

  [[nodiscard]] const ModelLayout& layout() const { return *layout_; }
  [[nodiscard]] Window& window(size_t space) { return *states_[space].window; }
  [[nodiscard]] bool is_open(size_t space) const { return states_[space].is_open; }
  [[nodiscard]] size_t n_open() const { return n_open_; }
  // Elements of what is open, persistent spaces not counted.
  [[nodiscard]] uint64_t open_numel() const { return open_numel_; }
  [[nodiscard]] void* view(size_t space) const { return states_[space].view; }

  // Between acquire and release a space stays open, and its view is whole; both nest. [collective] as open is.
  void acquire(const std::vector<size_t>& spaces) {
    open(spaces);
    for (const size_t s : spaces) {
      ++states_[s].acquired;
      if (std::exchange(states_[s].is_begun, false)) source_->finish_open(s, states_[s].view);
    }
  }
  void release(const std::vector<size_t>& spaces) {
    for (const size_t s : spaces) --states_[s].acquired;
  }
  // Opens what is not open yet. [collective] on a transport that copies: all ranks open in the same order.
  void open(const std::vector<size_t>& spaces) {
    for (const size_t s : spaces) {
      if (!states_[s].is_open) open_one(s);
    }
  }
  // Closes all spaces but those that are acquired and those to keep.
  void close_except(const std::set<size_t>& keep) {
    for (size_t s = 0; s < states_.size(); ++s) {
      if (states_[s].is_open && states_[s].acquired == 0 && keep.count(s) == 0) close_one(s);
    }
  }

 private:
  struct State {
    std::optional<Window> window;  // from materialize on, unless the source keeps the segments
    Buffer own_buffer;             // of a shared space, on a transport that copies
    size_t slot = SIZE_MAX;        // index in slots_ while open there
    void* view = nullptr;
    bool is_open = false;
    bool is_begun = false;  // by the source, which has not been told to finish
    uint32_t acquired = 0;
  };

  // Where a view is copied to: nowhere (shared pages, or the window's own memory), a buffer of the space, or a slot.
  [[nodiscard]] bool has_own_buffer(const FlatSpace& space) const {
    return gathers_by_copy_ && space.shared && !space.persistent;
  }
  [[nodiscard]] bool opens_in_slot(const FlatSpace& space) const {
    return gathers_by_copy_ && !space.shared && !space.persistent;
  }
  [[nodiscard]] uint64_t backing_bytes(uint64_t view_bytes) const {
    return source_ != nullptr ? source_->backing_bytes(view_bytes) : view_bytes;
  }
  [[nodiscard]] bool has_windows() const { return source_ == nullptr || !source_->keeps_segments(); }

  void open_one(size_t s) {
    State& state = states_[s];
    state.is_open = true;
    state.is_begun = source_ != nullptr;
    ++opens_;
    ++n_open_;
    count(s, +1);
    if (is_dry_ && source_ != nullptr) source_->open(s, nullptr, nullptr);
    if (is_dry_) return;
    void* backing = state.own_buffer.data();
    if (opens_in_slot(layout_->spaces[s])) backing = slots_[state.slot = take_slot()].data();
    if (source_ == nullptr) {
      state.view = state.window->open(backing);
      return;
    }
    state.view = source_->view_in(s, backing);
    source_->open(s, state.window ? &*state.window : nullptr, state.view);
  }
  void close_one(size_t s) {
    State& state = states_[s];
    state.is_open = state.is_begun = false;
    --n_open_;
    count(s, -1);
    if (source_ != nullptr)
      source_->close(s, state.window ? &*state.window : nullptr, state.view);
    else if (!is_dry_)
      state.window->close();
    if (is_dry_) return;
    state.view = nullptr;
    if (state.slot != SIZE_MAX) free_slots_.push_back(state.slot);
    state.slot = SIZE_MAX;
  }

  void count(size_t s, int sign) {
    const FlatSpace& space = layout_->spaces[s];
    if (space.persistent) return;
    uint64_t bytes = space.value_bytes() - space.value_segment_bytes(rank_);
    if (gathers_by_copy_) bytes = space.shared ? 0 : backing_bytes(slot_bytes_);
    open_numel_ += sign > 0 ? space.numel : uint64_t{0} - space.numel;
    open_bytes_ = sign > 0 ? open_bytes_ + bytes : open_bytes_ - bytes;
    peak_open_bytes_ = std::max(peak_open_bytes_, open_bytes_);
  }
  size_t take_slot() {
    if (free_slots_.empty()) {
      slots_.emplace_back(*host_, DDH_TAG_PARAM, backing_bytes(slot_bytes_), "gathered parameters");
      return slots_.size() - 1;
    }
    const size_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  const Host* host_ = nullptr;
  const ModelLayout* layout_ = nullptr;
  ddh_group* group_ = nullptr;
  int32_t rank_ = 0;
  ViewSource* source_ = nullptr;
  bool gathers_by_copy_ = false;
  bool is_dry_ = true;  // until materialize
  uint64_t opens_ = 0;
  std::vector<State> states_;  // per space
  std::vector<Buffer> slots_;  // each with room for a view of slot_bytes_
  std::vector<size_t> free_slots_;
  uint64_t slot_bytes_ = 0;  // of the largest space that opens in one
  uint64_t open_bytes_ = 0, peak_open_bytes_ = 0;
  uint64_t open_numel_ = 0;
  size_t n_open_ = 0;
};

// Calls use_unit(ddh_unit_use) for the uses of `micro_batches` micro-batches of a program, as the host makes them.
template <class UseUnit>
void run_uses(const RunProgram& program, uint32_t micro_batches, UseUnit&& use_unit) {
  const std::vector<int32_t> units = program.units(micro_batches);
  for (size_t at = 0; at < units.size(); ++at) {
    const ddh_op& op = program.ops[at % program.ops.size()];
    ddh_unit_use use{};
    use.struct_size = sizeof use;
    use.program = program.program;
    use.unit = op.unit;
    use.position = op.position;
    use.micro_batch = static_cast<int32_t>(at / program.ops.size());
    use.phase = op.phase;
    use.flags = op.flags;
    use.next = units.data() + at + 1;
    use.n_next = static_cast<uint32_t>(units.size() - at - 1);
    use_unit(use);
  }
}

// Runs acquire and release over the steps of every program of the run on `params`, which must not be materialized.
template <class Acquire, class Release>
uint64_t peak_open_bytes(GatheredParams& params, Acquire&& acquire, Release&& release) {
  for (const RunProgram& program : params.layout().programs) {
    run_uses(program, std::min(2U, program.micro_batches), [&](const ddh_unit_use& use) {
      acquire(use, params);
      release(use, params);
    });
    params.close_except({});
  }
  return params.peak_open_bytes();
}

// Calls acquire and release as a step of the run's first program does.
template <class Acquire, class Release>
void run_train_step(const ModelLayout& layout, Acquire&& acquire, Release&& release) {
  if (layout.programs.empty()) return;
  const RunProgram& program = layout.programs.front();
  run_uses(program, program.micro_batches, [&](const ddh_unit_use& use) {
    acquire(use);
    release(use);
  });
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
