// SPDX-License-Identifier: Apache-2.0
//
// engine/settings/run_programs.hpp: the programs that this run executes, each as a list of ops: units forward, then in
// reverse for the backward, with a second forward before it if activations are recomputed. Only this code decides the
// order; strategies get the lists in ddh_attach_args.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ddh/ddh.h"

namespace ddhost {

// The ops of a program, and the units that come after each of them.
class ProgramOps {
 public:
  // `recompute_every`: n recomputes every n-th position, counted from 1; 0: none.
  ProgramOps(const ddh_model_desc& model, int32_t program, uint32_t micro_batches, uint32_t recompute_every);

  [[nodiscard]] int32_t program() const { return program_; }
  // Of one micro-batch.
  [[nodiscard]] const std::vector<ddh_op>& ops() const { return ops_; }
  // One per parameter of the model; empty if the program trains nothing.
  [[nodiscard]] const std::vector<uint8_t>& trains() const { return trains_; }
  // One use of a unit, with all units that come after it in the step.
  [[nodiscard]] ddh_unit_use use(uint32_t micro_batch, size_t op_index) const;
  // As strategies see it; valid while this object lives.
  [[nodiscard]] ddh_run_program described() const;

 private:
  void add_backward(const ddh_program_desc& program);

  int32_t program_;
  uint32_t micro_batches_;
  std::vector<ddh_op> ops_;
  std::vector<int32_t> units_;  // of all micro-batches, in order of use
  std::vector<uint8_t> trains_;
};

class RunPrograms {
 public:
  // `trained`: training programs in the order of their turns; one may occur more than once. `others`: evaluations and
  // updates.
  RunPrograms(const ddh_model_desc& model, const std::vector<int32_t>& trained, const std::vector<int32_t>& others,
              uint32_t grad_accum_steps, uint32_t recompute_every);

  [[nodiscard]] const ProgramOps& of(int32_t program) const { return ops_.at(program); }
  // Training programs first, in the order of their first turn.
  [[nodiscard]] const std::vector<ddh_run_program>& described() const { return described_; }

 private:
  std::map<int32_t, ProgramOps> ops_;  // by program; elements stay in place
  std::vector<ddh_run_program> described_;
};

// The program that evaluates a training program, or -1.
int32_t eval_program_of(const ddh_model_desc& model, int32_t program);
// The programs that evaluate several training programs, each once, in their order.
std::vector<int32_t> eval_programs_of(const ddh_model_desc& model, const std::vector<int32_t>& programs);
std::vector<int32_t> update_programs_of(const ddh_model_desc& model);

}  // namespace ddhost
