// SPDX-License-Identifier: Apache-2.0
#include "engine/services/optim/update_check.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "ddh/sdk/params/layout.hpp"
#include "ddh/sdk/plugin.hpp"
#include "ddh/sdk/tier/checksum.hpp"

namespace ddhost {

// A buffer that an optimizer's call gets, for the ranges of one parameter.
struct UpdateBuffer {
  enum class Kind { kMaster, kLowp, kGrad, kSlot, kValue };
  Kind kind;
  const char* base;  // element 0 is at flat_offset 0; NULL if the call gets none
  uint64_t element_bytes;
  bool reads, writes;  // what the header allows the call
  std::string name;    // "the master weights"
  uint64_t block = 1;  // elements of the parameter for each of its own
  // With DDH_SLOT_SIZED: its elements for the parameter of the range, which begin at the base.
  std::optional<uint64_t> sized = std::nullopt;

  [[nodiscard]] bool is_per_element() const { return block == 1 && !sized; }
  // Bytes from the base to a flat_offset on the grid.
  [[nodiscard]] uint64_t bytes_before(uint64_t flat_offset) const {
    return sized ? 0 : flat_offset / block * element_bytes;
  }
  // Bytes that belong to elements of the parameter from the grid on.
  [[nodiscard]] uint64_t bytes_of(uint64_t numel) const {
    return (sized ? *sized : (numel + block - 1) / block) * element_bytes;
  }
  [[nodiscard]] const char* at(uint64_t flat_offset) const { return base + bytes_before(flat_offset); }
  // The index, in the tensor of this buffer, of the element that lies `bytes` behind the element of `param_offset`.
  [[nodiscard]] uint64_t element_at(uint64_t param_offset, uint64_t bytes) const {
    return param_offset / block + bytes / element_bytes;
  }
};

namespace {

using Kind = UpdateBuffer::Kind;

// Elements of a copy, unless the parameter is needed whole.
constexpr uint64_t kPiece = uint64_t{1} << 16;
// Finite numbers in every dtype.
constexpr unsigned char kFirstMark = 0x3c, kSecondMark = 0x3e;

// Calls visit with the pieces of a range.
template <class Visit>
void for_each_piece(const ddh_range& range, bool whole, Visit&& visit) {
  for (uint64_t done = 0; done < range.numel; done += kPiece) {
    const uint64_t numel = whole ? range.numel : std::min(kPiece, range.numel - done);
    visit(ddh_range{range.param, 0, range.param_offset + done, range.flat_offset + done, numel});
    if (whole) return;
  }
}

constexpr uint64_t kAlignment = 256;

// An optimizer's call repeated on a copy of a piece of a range. The copy lies at another place of flat buffers, and the
// padding around it is marked.
class UpdateReplay {
 public:
  // `lead`: elements before the range in the copies, a multiple of 64. `mark`: the byte that fills the padding, and
  // memory that the call may not read. The arguments outlive this object.
  UpdateReplay(const ddh_update_args& real, std::span<const UpdateBuffer> buffers, const ddh_range& range,
               uint64_t lead, unsigned char mark);
  UpdateReplay(const UpdateReplay&) = delete;
  UpdateReplay& operator=(const UpdateReplay&) = delete;

  // The arguments for the copies; valid while this object lives.
  [[nodiscard]] ddh_update_args& args() { return args_; }
  [[nodiscard]] float* const* values() const { return values_.data(); }

  // The range's elements of a buffer; empty where the call gets none.
  [[nodiscard]] std::span<const char> result(size_t buffer) const;
  // "writes to the master weights behind the end of its range"; empty: nothing forbidden. `skipped`: the call may write
  // nothing.
  [[nodiscard]] std::string forbidden_write(bool skipped = false) const;

 private:
  struct Copy {
    std::vector<char> memory;
    char* begin = nullptr;  // aligned as the memory of strategies
    std::vector<char> before;
  };
  void make_args(const ddh_update_args& real);

  const std::span<const UpdateBuffer> buffers_;
  const uint64_t lead_;
  ddh_range range_;
  std::vector<Copy> copies_;
  std::vector<const float*> grads_;
  std::vector<void*> slots_;
  std::vector<float*> values_;
  ddh_optim_shard shard_;
  ddh_update_args args_;
};

UpdateReplay::UpdateReplay(const ddh_update_args& real, std::span<const UpdateBuffer> buffers, const ddh_range& range,
                           uint64_t lead, unsigned char mark)
    : buffers_(buffers), lead_(lead), range_(range), copies_(buffers.size()), shard_(*real.shard), args_(real) {
  range_.flat_offset = lead;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const UpdateBuffer& buffer = buffers[i];
    if (buffer.base == nullptr) continue;
    Copy& copy = copies_[i];
    const uint64_t bytes = buffer.sized ? (*buffer.sized + DDH_GRID) * buffer.element_bytes
                                        : buffer.bytes_of(lead + ddh::round_up_to_grid(range.numel) + DDH_GRID);
    copy.memory.assign(bytes + kAlignment, static_cast<char>(mark));
    const auto address = reinterpret_cast<uintptr_t>(copy.memory.data());
    copy.begin = copy.memory.data() + (kAlignment - address % kAlignment) % kAlignment;
    if (buffer.reads)
      std::memcpy(copy.begin + buffer.bytes_before(lead), buffer.at(range.flat_offset), buffer.bytes_of(range.numel));
    copy.before.assign(copy.begin, copy.begin + bytes);
  }
  make_args(real);
}

void UpdateReplay::make_args(const ddh_update_args& real) {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    char* const p = copies_[i].begin;
    switch (buffers_[i].kind) {
      case UpdateBuffer::Kind::kMaster:
        shard_.master = reinterpret_cast<float*>(p);
        break;
      case UpdateBuffer::Kind::kLowp:
        shard_.lowp = p;
        break;
      case UpdateBuffer::Kind::kGrad:
        grads_.push_back(reinterpret_cast<const float*>(p));
        break;
      case UpdateBuffer::Kind::kSlot:
        slots_.push_back(p);
        break;
      case UpdateBuffer::Kind::kValue:  // element 0 belongs to the range's first
        values_.push_back(reinterpret_cast<float*>(p) + lead_);
        break;
    }
  }
  shard_.ranges = &range_;
  shard_.n_ranges = 1;
  shard_.grads = grads_.data();
  shard_.slots = real.shard->slots == nullptr ? nullptr : slots_.data();
  args_.shard = &shard_;
}

std::span<const char> UpdateReplay::result(size_t buffer) const {
  const char* const begin = copies_[buffer].begin;
  if (begin == nullptr) return {};
  return {begin + buffers_[buffer].bytes_before(lead_), buffers_[buffer].bytes_of(range_.numel)};
}

std::string UpdateReplay::forbidden_write(bool skipped) const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const Copy& copy = copies_[i];
    if (copy.begin == nullptr) continue;
    const uint64_t first = buffers_[i].bytes_before(lead_), end = first + buffers_[i].bytes_of(range_.numel);
    const bool may_write = buffers_[i].writes && !skipped;
    for (auto before = copy.before.begin(); before != copy.before.end(); ++before) {
      const auto offset = before - copy.before.begin();
      before = std::mismatch(before, copy.before.end(), copy.begin + offset).first;
      if (before == copy.before.end()) break;
      const auto byte = static_cast<uint64_t>(before - copy.before.begin());
      const std::string& name = buffers_[i].name;
      if (byte < first) return "writes to " + name + " before the beginning of its range";
      if (byte >= end) return "writes to " + name + " behind the end of its range";
      if (!may_write)
        return ddh::str("writes element ", buffers_[i].element_at(range_.param_offset, byte - first), " of ", name,
                        skipped ? " in a step that is skipped" : "");
    }
  }
  return "";
}

}  // namespace

// A call of update or prepare on ranges of one parameter.
struct UpdateCheck::Call {
  const Optimizers::Instance& optimizer;
  const ddh_update_args& args;
  const ddh_prepare_args* prepare;  // null: update
  std::vector<UpdateBuffer> buffers;

  [[nodiscard]] PluginCall which() const { return prepare == nullptr ? PluginCall::kUpdate : PluginCall::kPrepare; }
  void on(UpdateReplay& replay) const {
    const Optimizers::Instance& o = optimizer;
    if (prepare == nullptr) return o.call(which(), o.table->update, o.inst, &replay.args());
    const ddh_prepare_args mine{sizeof mine, prepare->sum_count, &replay.args(), replay.values()};
    o.call(which(), o.table->prepare, o.inst, &mine);
  }
};

std::vector<UpdateBuffer> UpdateCheck::buffers_of(const Optimizers::Instance& o, const ddh_optim_shard& shard,
                                                  size_t range, const ddh_prepare_args* prepare) const {
  const int32_t param = shard.ranges[range].param;
  const auto base = [](const void* p) { return static_cast<const char*>(p); };
  const bool updates = prepare == nullptr;
  std::vector<UpdateBuffer> all = {
      {Kind::kMaster, base(shard.master), sizeof(float), true, updates && !o.follows, "the master weights"}};
  if (shard.lowp != nullptr)
    all.push_back(
        {Kind::kLowp, base(shard.lowp), ddh_dtype_bytes(shard.lowp_dtype), false, updates, "the low-precision copy"});
  for (uint32_t g = 0; g < shard.n_grads; ++g)
    all.push_back({Kind::kGrad, base(shard.grads[g]), sizeof(float), true, false, "the gradients"});
  for (uint32_t i = 0; i < shard.n_slots; ++i) {
    const bool used = !DDH_CAN(o.table, ddh_optimizer_api, slot_used) || o.table->slot_used(o.inst, i, param) != 0;
    all.push_back({Kind::kSlot, base(shard.slots[i]), ddh_dtype_bytes(o.slots[i].dtype), used, used,
                   ddh::str(used ? "slot '" : "the unused slot '", o.slots[i].name, "'")});
    UpdateBuffer& slot = all.back();
    if (o.slots[i].extent == DDH_SLOT_PER_BLOCK) slot.block = DDH_GRID;
    if (o.sized[i].empty()) continue;
    slot.sized = o.sized[i][static_cast<size_t>(param)];
    if (slot.base != nullptr) slot.base += o.part(i, {shard.ranges, shard.n_ranges}, range).offset;
  }
  for (uint32_t k = 0; prepare != nullptr && k < prepare->sum_count; ++k) {
    const char* const first =
        reinterpret_cast<const char*>(prepare->values[k]) - shard.ranges[0].flat_offset * sizeof(float);
    all.push_back({Kind::kValue, first, sizeof(float), false, true, "the values for norms"});
  }
  return all;
}

void UpdateCheck::update(const Optimizers::Instance& o, const ddh_update_args& args) const {
  const ddh_optim_shard& shard = *args.shard;
  require_zero_padding(o, shard);
  struct Expected {
    size_t call;
    ddh_range piece;
    Sums sums;
  };
  std::vector<Call> calls;
  std::vector<Expected> expected;
  for (uint32_t r = 0; r < shard.n_ranges; ++r) {
    const ddh_range& range = shard.ranges[r];
    if (range.numel == 0) continue;
    calls.push_back({o, args, nullptr, buffers_of(o, shard, r, nullptr)});
    const bool whole = o.needs[static_cast<size_t>(range.param)] == DDH_NEEDS_WHOLE_PARAM;
    for_each_piece(range, whole, [&](const ddh_range& piece) {
      if (expected.empty()) repeat_skipped(calls.back(), piece);
      expected.push_back({calls.size() - 1, piece, repeat(calls.back(), piece)});
    });
  }
  const Sums gaps = gap_sums(o, shard);
  o.call(PluginCall::kUpdate, o.table->update, o.inst, &args);
  if (gap_sums(o, shard) != gaps)
    o.call.blame(PluginCall::kUpdate, {}, "writes between the ranges of parameter '",
                 model_.params[shard.ranges[0].param]->name, "' and those of parameters after it");
  for (const Expected& e : expected) require_same(calls[e.call], e.piece, e.sums);
}

void UpdateCheck::prepare(const Optimizers::Instance& o, const ddh_prepare_args& args) const {
  const ddh_optim_shard& shard = *args.update->shard;
  const ddh_range& range = shard.ranges[0];
  const Call call{o, *args.update, &args, buffers_of(o, shard, 0, &args)};
  const Sums expected = repeat(call, range);
  o.call(PluginCall::kPrepare, o.table->prepare, o.inst, &args);
  require_same(call, range, expected);
}

UpdateCheck::Sums UpdateCheck::repeat(const Call& call, const ddh_range& piece) const {
  const char* const param = model_.params[piece.param]->name;
  const auto run = [&](UpdateReplay& replay) {
    call.on(replay);
    if (const std::string wrong = replay.forbidden_write(); !wrong.empty())
      call.optimizer.call.blame(call.which(), {}, wrong, ", parameter '", param, "'");
  };
  UpdateReplay whole(call.args, call.buffers, piece, DDH_GRID, kFirstMark);
  run(whole);
  Sums sums;
  for (size_t i = 0; i < call.buffers.size(); ++i)
    sums.push_back(ddh::checksum64(whole.result(i).data(), whole.result(i).size()));
  // Cut near the middle, if the parameter may be cut.
  const bool may_cut = call.optimizer.needs[static_cast<size_t>(piece.param)] != DDH_NEEDS_WHOLE_PARAM;
  const uint64_t cut = may_cut && piece.numel > DDH_GRID ? ddh::round_up_to_grid(piece.numel / 2) : piece.numel;
  for (uint64_t done = 0; done < piece.numel; done = done == 0 ? cut : piece.numel) {
    const ddh_range part{piece.param, 0, piece.param_offset + done, piece.flat_offset + done,
                         done == 0 ? cut : piece.numel - cut};
    UpdateReplay again(call.args, call.buffers, part, uint64_t{3} * DDH_GRID, kSecondMark);
    run(again);
    for (size_t i = 0; i < call.buffers.size(); ++i) {
      const UpdateBuffer& buffer = call.buffers[i];
      if (!buffer.writes) continue;
      const std::span<const char> mine = again.result(i);
      const auto [at, other] = std::mismatch(
          mine.begin(), mine.end(), whole.result(i).begin() + static_cast<std::ptrdiff_t>(buffer.bytes_before(done)));
      if (at == mine.end()) continue;
      const uint64_t element = buffer.element_at(part.param_offset, static_cast<uint64_t>(at - mine.begin()));
      call.optimizer.call.blame(
          call.which(), {}, "gives element ", element, " of parameter '", param, "' other bits in ", buffer.name,
          " when the same values are at another place of the buffers, in a range from element ", part.param_offset,
          " to ", part.param_offset + part.numel, " instead of ", piece.param_offset, " to ",
          piece.param_offset + piece.numel,
          "; the result must depend neither on the range, nor on values outside of it, nor on earlier calls");
    }
  }
  return sums;
}

void UpdateCheck::repeat_skipped(const Call& call, const ddh_range& piece) const {
  UpdateReplay replay(call.args, call.buffers, piece, DDH_GRID, kFirstMark);
  ddh_step_block skipped = *call.args.block;
  skipped.skip = 1;
  replay.args().block = &skipped;
  call.on(replay);
  if (const std::string wrong = replay.forbidden_write(/*skipped=*/true); !wrong.empty())
    call.optimizer.call.blame(call.which(), {}, wrong, ", parameter '", model_.params[piece.param]->name, "'");
}

void UpdateCheck::require_same(const Call& call, const ddh_range& piece, const Sums& expected) const {
  for (size_t i = 0; i < call.buffers.size(); ++i) {
    const UpdateBuffer& buffer = call.buffers[i];
    if (buffer.base == nullptr || (!buffer.writes && !buffer.reads)) continue;
    if (ddh::checksum64(buffer.at(piece.flat_offset), buffer.bytes_of(piece.numel)) == expected[i]) continue;
    call.optimizer.call.blame(call.which(), {}, "gives parameter '", model_.params[piece.param]->name,
                              "' other bits in ", buffer.name,
                              " than the same call on a copy of its values, between elements ", piece.param_offset,
                              " and ", piece.param_offset + piece.numel,
                              "; the result must depend on these values alone, not on other ranges or earlier calls");
  }
}

// Of the elements between the ranges, per gap and buffer.
UpdateCheck::Sums UpdateCheck::gap_sums(const Optimizers::Instance& o, const ddh_optim_shard& shard) const {
  std::vector<size_t> order;
  for (size_t r = 0; r < shard.n_ranges; ++r)
    if (shard.ranges[r].numel > 0) order.push_back(r);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return shard.ranges[a].flat_offset < shard.ranges[b].flat_offset; });
  Sums sums;
  for (size_t i = 1; i < order.size(); ++i) {
    const ddh_range& before = shard.ranges[order[i - 1]];
    const uint64_t begin = before.flat_offset + before.numel, end = shard.ranges[order[i]].flat_offset;
    for (const UpdateBuffer& buffer : buffers_of(o, shard, order[i], nullptr)) {
      const uint64_t first = buffer.is_per_element() ? begin : ddh::round_up_to_grid(begin);
      if (buffer.base != nullptr && !buffer.sized && first < end)
        sums.push_back(ddh::checksum64(buffer.at(first), buffer.bytes_of(end - first)));
    }
  }
  return sums;
}

void UpdateCheck::require_zero_padding(const Optimizers::Instance& o, const ddh_optim_shard& shard) const {
  for (uint32_t r = 0; r < shard.n_ranges; ++r) {
    const ddh_range& range = shard.ranges[r];
    const ddh_param_desc& param = *model_.params[range.param];
    const uint64_t end = range.flat_offset + range.numel, padding = ddh::round_up_to_grid(end) - end;
    if (padding == 0 || range.numel == 0 || range.param_offset + range.numel != param.numel) continue;
    for (const UpdateBuffer& buffer : buffers_of(o, shard, r, nullptr)) {
      if (buffer.base == nullptr || !buffer.is_per_element()) continue;
      const char* const first = buffer.at(end);
      if (std::all_of(first, first + padding * buffer.element_bytes, [](char c) { return c == 0; })) continue;
      ddh::fail(DDH_FAILED_PRECONDITION, "the ", padding, " elements of padding behind parameter '", param.name,
                "' are not zero in ", buffer.name, " that the strategy passes to update",
                "; parameters begin on multiples of 64 elements, and the padding between them stays zero: fix what ",
                "writes there, or the strategy's layout");
    }
  }
}

}  // namespace ddhost
