// SPDX-License-Identifier: Apache-2.0
//
// engine/state/shown_weights.hpp: the weights that an optimizer shows instead of the masters (ddh_optimizer_api.show), with
// any strategy: between steps they take the place of the masters in the strategy's state entries, and the masters wait in
// the host's slot. Evaluations and the file of final weights come in between; then the masters get their bits back.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "engine/state/state_pieces.hpp"

namespace ddhost {

class ShownWeights {
 public:
  // The arguments outlive the object.
  ShownWeights(const StateSource& source, const Optimizers& optimizers, Staging& staging)
      : source_(source), optimizers_(optimizers), staging_(staging) {}

  // Whether an optimizer shows other weights than the masters; the same on every rank.
  [[nodiscard]] bool exist() const { return optimizers_.shown() != nullptr; }
  // Parameters have the weights that are shown, until restore. Both do nothing if there are none. [collective]
  void show();
  void restore();
  // Writes them into the host's slot, for a checkpoint. [collective]
  void write_to_slot();

 private:
  struct Entries;
  struct Part;
  // Whether the masters or the host's slot get what is shown; the slot gets the masters in the first case.
  enum class Target { masters, slot };
  void write_shown(Target target);
  void write_shown(const Entries& entries, const StatePiece& master, Target target, PieceAccess& access);
  void compute(const Entries& entries, Part& part, PieceAccess& access) const;
  void require_all(const ddh_range& range, uint64_t found, const char* slot) const;
  [[nodiscard]] Entries entries() const;
  void commit();

  const StateSource source_;
  const Optimizers& optimizers_;
  Staging& staging_;
};

}  // namespace ddhost
