// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/params/gathered_params.hpp: parameters of which a rank keeps only its segment. Their full views are opened
// and closed as units need them. The strategy decides when to open and close a space; this class does it.
//
// Before materialize it only counts bytes, so a strategy finds its peak memory by a dry run of its policy.
#pragma once

#include <functional>
#include <optional>

#include "ddh/sdk/params/window.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Another source of full views than windows. Views are then copies.
class ViewSource {
 public:
  ViewSource() = default;
  ViewSource(const ViewSource&) = delete;
  ViewSource& operator=(const ViewSource&) = delete;
  virtual ~ViewSource() = default;
  // Whether the source keeps the segments. Then there are no windows.
  [[nodiscard]] virtual bool keeps_segments() const = 0;
  // Bytes under DDH_TAG_PARAM that materialize allocates.
  [[nodiscard]] virtual uint64_t resting_bytes() const = 0;
  // Of these: in pinned memory.
  [[nodiscard]] virtual uint64_t pinned_bytes() const { return 0; }
  virtual void materialize() = 0;
  // The memory for a view of this many bytes, and the offset of the view in it.
  [[nodiscard]] virtual uint64_t backing_bytes(uint64_t view_bytes) const { return view_bytes; }
  [[nodiscard]] virtual void* view_in(size_t, void* backing) const { return backing; }
  // Fills `view` with a space's full view, or begins to. `window` is the space's window, if there are windows. In a dry
  // run both are nullptr. [collective]
  virtual void open(size_t space, Window* window, void* view) = 0;
  // Completes open before the view's first use. Not called for a view that is closed unused. [collective]
  virtual void finish_open(size_t, void*) {}
  // What this rank sent in the last open of the space; nullopt: its segment, to each other rank.
  [[nodiscard]] virtual std::optional<SentBytes> sent_in_open(size_t) const { return std::nullopt; }
  // Called before the view is freed. [collective]
  virtual void close(size_t space, Window* window, void* view) = 0;
};

// This rank's segment in a full view.
void* segment_in(const FlatSpace& space, int32_t rank, void* view);
// All-gathers the segments into every rank's full view, which already has its own segment. [collective]
void gather_segments(const Host& host, ddh_group* group, const FlatSpace& space, int32_t rank, void* view);

class GatheredParams {
 public:
  GatheredParams() = default;
  // The ranks of `group` share the spaces; `rank` is this one's index in it. `source` outlives this object.
  GatheredParams(const Host& host, const ModelLayout& layout, ddh_group* group, int32_t rank,
                 ViewSource* source = nullptr);

  // Bytes that are always allocated: the segments, full views of persistent spaces, and on a transport that copies a
  // buffer for each shared space.
  [[nodiscard]] uint64_t resting_bytes() const;
  // The number of times that a closed view was opened.
  [[nodiscard]] uint64_t opens() const { return opens_; }
  // What this rank sent for them. Only counted before materialize.
  [[nodiscard]] SentBytes sent_bytes() const { return sent_; }
  // Whether a view is a copy of all segments; else it is in pages that the ranks share.
  [[nodiscard]] bool gathers_by_copy() const { return gathers_by_copy_; }
  // The peak of open bytes so far, beyond resting_bytes.
  [[nodiscard]] uint64_t peak_open_bytes() const { return peak_open_bytes_; }

  void materialize();

  [[nodiscard]] const ModelLayout& layout() const { return *layout_; }
  [[nodiscard]] Window& window(size_t space) { return *states_[space].window; }
  [[nodiscard]] bool is_open(size_t space) const { return states_[space].is_open; }
  [[nodiscard]] size_t n_open() const { return n_open_; }
  // Elements of open spaces, without persistent ones.
  [[nodiscard]] uint64_t open_numel() const { return open_numel_; }
  [[nodiscard]] void* view(size_t space) const { return states_[space].view; }

  // Between acquire and release a space stays open, and its view is complete. Both nest. [collective] as open is.
  void acquire(const std::vector<size_t>& spaces);
  void release(const std::vector<size_t>& spaces);
  // Opens a space unless it is open. [collective] on a transport that copies: all ranks open in the same order.
  void open(const std::vector<size_t>& spaces);
  // A space that is kept stays open in the next close_others.
  void keep(size_t space) { states_[space].is_kept = true; }
  [[nodiscard]] bool is_kept(size_t space) const { return states_[space].is_kept; }
  // Closes all spaces that are neither acquired nor kept. None is kept afterwards.
  void close_others();

 private:
  struct State {
    std::optional<Window> window;  // from materialize on, unless the source keeps the segments
    Buffer own_buffer;             // of a shared space, on a transport that copies
    size_t slot = SIZE_MAX;        // index in slots_ while open there
    void* view = nullptr;
    bool is_open = false;
    bool is_begun = false;  // the source has begun to fill the view and not finished
    bool is_kept = false;
    uint32_t acquired = 0;
  };

  // The memory of a view: none (shared pages, or the window's own memory), a buffer of the space, or a slot.
  [[nodiscard]] bool has_own_buffer(const FlatSpace& space) const;
  [[nodiscard]] bool opens_in_slot(const FlatSpace& space) const;
  [[nodiscard]] uint64_t backing_bytes(uint64_t view_bytes) const;
  [[nodiscard]] bool has_windows() const { return source_ == nullptr || !source_->keeps_segments(); }

  void open_one(size_t s);
  void close_one(size_t s);

  void count(size_t s, int sign);
  void count_sent(size_t s);
  size_t take_slot();

  const Host* host_ = nullptr;
  const ModelLayout* layout_ = nullptr;
  ddh_group* group_ = nullptr;
  int32_t rank_ = 0;
  ViewSource* source_ = nullptr;
  bool gathers_by_copy_ = false;
  bool is_dry_ = true;  // until materialize
  uint64_t opens_ = 0;
  SentBytes sent_;
  std::vector<State> states_;  // per space
  std::vector<Buffer> slots_;  // each with room for a view of slot_bytes_
  std::vector<size_t> free_slots_;
  uint64_t slot_bytes_ = 0;  // size of the largest space that uses one
  uint64_t open_bytes_ = 0, peak_open_bytes_ = 0;
  uint64_t open_numel_ = 0;
  size_t n_open_ = 0;
};

// Calls use_unit for all uses in `micro_batches` micro-batches of a program, in the host's order.
void run_uses(const RunProgram& program, uint32_t micro_batches,
              const std::function<void(const ddh_unit_use&)>& use_unit);

// The peak of open bytes beyond resting_bytes: runs acquire and release over a step of every program of the run.
// `params` must not be materialized.
using UseParams = std::function<void(const ddh_unit_use&, GatheredParams&)>;
uint64_t peak_open_bytes(GatheredParams& params, const UseParams& acquire, const UseParams& release);

// Calls acquire and release as a step of the run's first program does.
void run_train_step(const ModelLayout& layout, const std::function<void(const ddh_unit_use&)>& acquire,
                    const std::function<void(const ddh_unit_use&)>& release);

}  // namespace DDH_HIDDEN
}  // namespace ddh
