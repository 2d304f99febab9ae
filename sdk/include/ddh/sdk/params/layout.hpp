// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/params/layout.hpp: shard arithmetic: the places of parameters in flat spaces, and the division of a flat
// space into one segment per rank. It uses no memory of the model and no communication.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ddh/sdk/params/run_program.hpp"
#include "ddh/sdk/sent_bytes.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Parameters and shards start at multiples of this many elements: four cache lines of floats, and the block of the
// exact norm.
inline constexpr uint64_t kGrid = DDH_GRID;

inline constexpr uint64_t round_up_to_grid(uint64_t numel) { return (numel + kGrid - 1) / kGrid * kGrid; }

struct PlacedParam {
  int32_t param;
  uint64_t offset;         // first element in the flat space, a multiple of kGrid
  uint64_t numel;          // without padding
  bool in_blocks = false;  // its gradient comes in blocks
};

// One segment of a flat space for each rank: contiguous, in rank order, in elements. Segments are as even as the grid
// allows, or as given.
struct Cut {
  Cut() = default;
  explicit Cut(std::vector<uint64_t> numel);
  Cut(uint64_t numel, int32_t world_size);
  std::vector<uint64_t> segment_numel, segment_offset;  // per rank
};

// Parameters share a flat space if they have the same unit, training programs, dtype in views, slots of the optimizer,
// `whole` and `persistent`. A bucket is the flat space of several units. A parameter whose gradient a codec compresses has a
// space of its own.
struct FlatSpace {
  int32_t unit = 0;         // in a bucket: the unit whose backward is last
  uint64_t trained_by = 0;  // bit g: program g of the model trains these
  bool whole = false;       // segments end where parameters end
  bool persistent = false;  // small parameters that stay gathered
  bool coded = false;       // a codec may compress its gradient
  bool shared = false;      // used more than once in a pass: tied weights, a unit that occurs twice
  int32_t dtype = DDH_F32;  // dtype of values in views; gradients are fp32
  int32_t slot_use = 0;     // of all its parameters: Grouping::slot_use
  std::string name;         // "h.3"
  std::vector<PlacedParam> params;
  uint64_t numel = 0;  // padded
  // The first elements, of the parameters whose gradients come in blocks (DDH_GRAD_LATER).
  uint64_t blocks_numel = 0;
  Cut cut;

  [[nodiscard]] bool trained() const { return trained_by != 0; }
  // Trained, and its gradients are summed element by element.
  [[nodiscard]] bool trained_plain() const { return trained() && !coded; }
  [[nodiscard]] bool trained_in(int32_t program) const { return (trained_by >> program & 1) != 0; }
  // Whether its gradients are complete when grads_ready is called for a unit.
  [[nodiscard]] bool is_ready_after(int32_t unit_id, int32_t program) const {
    return unit == unit_id && trained_in(program);
  }
  [[nodiscard]] uint64_t segment_numel(int32_t rank) const { return cut.segment_numel[static_cast<size_t>(rank)]; }
  [[nodiscard]] uint64_t value_bytes() const { return numel * ddh_dtype_bytes(dtype); }
  [[nodiscard]] uint64_t value_segment_bytes(int32_t rank) const;
  [[nodiscard]] uint64_t grad_bytes() const { return numel * sizeof(float); }
  [[nodiscard]] uint64_t grad_segment_bytes(int32_t rank) const { return segment_numel(rank) * sizeof(float); }

  // The pieces of parameters inside [offset, offset + numel), with flat_offset counted from `offset`.
  [[nodiscard]] std::vector<ddh_range> ranges(uint64_t offset, uint64_t range_numel) const;
  [[nodiscard]] std::vector<ddh_range> segment_ranges(int32_t rank) const;
};

// Which units share a flat space. Bytes are counted in fp32 (gradients) in every precision, so that a setting gives the
// same spaces in each.
struct Grouping {
  uint64_t bucket_bytes = 0;      // a bucket gets units, in backward order, until it has this size; 0: one unit each
  uint64_t persistent_bytes = 0;  // parameters of at most this size stay gathered, in their own spaces; 0: none
  // In units that have more bytes of gradients, those of parameters with a grad_block come in blocks; 0: all are whole.
  uint64_t whole_grad_bytes = 0;
  // Per parameter: a number, equal for those that use the same slots of the optimizer, so that no slot takes memory for a
  // parameter that does not use it. Empty: all parameters may share spaces.
  std::vector<int32_t> slot_use;
};

// The layout of a whole model: its flat spaces, the place of each parameter, and the spaces that each unit uses.
class ModelLayout {
 public:
  ModelLayout() = default;
  // For the model and the programs of a run, sharded over args.world_size ranks. `whole`: per parameter, whether it
  // must stay on one rank; empty: none. `coded`: the same, whether a codec may compress its gradient.
  explicit ModelLayout(const ddh_attach_args& args, const std::vector<bool>& whole = {}, const Grouping& grouping = {},
                       const std::vector<bool>& coded = {});

  struct Place {
    size_t space = 0;
    uint64_t offset = 0;
  };
  std::vector<RunProgram> programs;
  std::vector<FlatSpace> spaces;
  std::vector<Place> place;                    // per parameter
  std::vector<std::vector<size_t>> unit_uses;  // per unit: the spaces it reads
  GroupRanks ranks;                            // among which the spaces are cut; by default the first of the world

  // What this rank sends if every other one gets its segment, or if each gets its segment of this rank's whole space.
  [[nodiscard]] SentBytes sent_values(const FlatSpace& space) const {
    return ranks.to_each(space.value_segment_bytes(static_cast<int32_t>(ranks.me())));
  }
  [[nodiscard]] SentBytes sent_grads(const FlatSpace& space) const {
    return ranks.pieces(space.cut.segment_numel.data(), space.numel, sizeof(float));
  }

  // The program whose calls ddh_plan counts.
  [[nodiscard]] int32_t first_program() const { return programs.empty() ? 0 : programs.front().program; }
  // Calls `visit` with each unit whose backward in the micro-batch of a use is still to come.
  template <class Visit>
  void for_backwards_after(const ddh_unit_use& use, Visit&& visit) const {
    const auto program =
        std::find_if(programs.begin(), programs.end(), [&](const RunProgram& p) { return p.program == use.program; });
    bool is_after = false;
    for (const ddh_op& op : program->ops) {
      if (is_after && op.phase == DDH_PHASE_BACKWARD) visit(op.unit);
      is_after = is_after || (op.position == use.position && op.phase == use.phase);
    }
  }

  // The spaces that are FlatSpace::is_ready_after this unit.
  [[nodiscard]] std::vector<size_t> trained_spaces(int32_t unit, int32_t program) const;
};

// One of `count` ranks that hold the same state.
struct Replica {
  int32_t index = 0, count = 1;
};

// Element `offset` of an array of `dtype`.
inline void* element_at(void* array, int32_t dtype, uint64_t offset) {
  return static_cast<char*>(array) + offset * ddh_dtype_bytes(dtype);
}

// Appends the state entries of one flat range: values or per-element slots of its parameters. `base`: the range's first
// element, of `dtype`, in DDH_MEM_* `memory`.
void append_state(std::vector<ddh_state_entry>& out, const std::vector<ddh_range>& ranges, int32_t kind, int32_t slot,
                  int32_t dtype, void* base, Replica replica, int32_t memory = DDH_MEM_DEVICE);

// The number of reductions of a space's gradients in one step.
uint32_t reductions_per_step(const ddh_attach_args& args);

}  // namespace DDH_HIDDEN
}  // namespace ddh
