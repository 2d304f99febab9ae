// SPDX-License-Identifier: Apache-2.0
//
// engine/services/optim/step_account.hpp: checks that a strategy counts each element once in the norm, and updates it once,
// in a step.
//
// A piece [begin, end) of a parameter adds mark(end) - mark(begin), where mark is a hash of parameter and element.
// Pieces that cover a parameter once add up to mark(numel) - mark(0), for any division and any distribution over ranks.
// If a piece is missing or occurs twice, the sum differs. So one number checks a whole step. decide sums it over the
// ranks, in the message that it sends anyway.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ddh/ddh.h"

namespace ddhost {

// The covered part of each parameter.
class Cover {
 public:
  Cover() = default;
  explicit Cover(size_t n_params) : params_(n_params) {}

  struct Param {
    uint64_t numel = 0;  // elements, with repetitions
    uint64_t marks = 0;  // modulo 2^64
    bool operator==(const Param&) const = default;
    Param& operator+=(const Param& other) {
      numel += other.numel;
      marks += other.marks;
      return *this;
    }
  };
  void clear() { params_.assign(params_.size(), Param{}); }
  void add(int32_t param, uint64_t begin, uint64_t numel) {
    params_[static_cast<size_t>(param)] += piece(param, begin, numel);
  }
  [[nodiscard]] const Param& of(int32_t param) const { return params_[static_cast<size_t>(param)]; }
  [[nodiscard]] const std::vector<Param>& params() const { return params_; }

  static Param piece(int32_t param, uint64_t begin, uint64_t numel);

 private:
  std::vector<Param> params_;
};

// "'h.0.weight' (unit 'h.0')".
std::string param_text(const ddh_model_desc& model, int32_t param);

class StepAccount {
 public:
  // `model` outlives the object.
  explicit StepAccount(const ddh_model_desc& model);

  // A step of a training program begins. `trains`: one per parameter of the model.
  void begin(int32_t program, std::span<const uint8_t> trains);

  // Throw if a range, or a shard for the optimizer, violates the rules of its header.
  void check_range(const ddh_range& range) const;
  void check_ranges(const ddh_range* ranges, uint32_t n_ranges) const;

  // Gradients in [begin, begin + numel) of a flat buffer count in the norm.
  void add_gradient(uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges);
  // A hash of everything that was counted here. The sum over the ranks is expected_gradients() if each element of each
  // trained parameter counted once.
  [[nodiscard]] uint64_t gradients() const { return gradient_marks_; }
  [[nodiscard]] uint64_t expected_gradients() const { return expected_marks_; }
  [[nodiscard]] const Cover& gradient_cover() const { return gradients_; }
  // Throws an error about the first parameter whose elements did not count once; `all`: the sum over the ranks.
  [[noreturn]] void fail_gradients(const std::vector<Cover::Param>& all) const;

  // Records an update of these ranges on this rank. Throws if it is their second one in the step.
  void add_update(std::span<const ddh_range> ranges);
  // Called after a step that was not skipped: checks that all trained elements that this rank holds were updated.
  void check_updates(const Cover& held) const;

 private:
  [[nodiscard]] bool trains(int32_t param) const { return trains_[static_cast<size_t>(param)] != 0; }
  void require_trained(int32_t param, const char* what) const;

  const ddh_model_desc& model_;
  int32_t program_ = -1;
  std::vector<uint8_t> trains_;  // per parameter, by the program
  uint64_t expected_marks_ = 0;
  uint64_t gradient_marks_ = 0;
  Cover gradients_, updates_;
};

}  // namespace ddhost
