// SPDX-License-Identifier: Apache-2.0
//
// engine/services/step_account.hpp: which elements of which parameters a strategy has counted in the norm, and
// updated, in a step.
//
// A piece [begin, end) of a parameter adds mark(end) - mark(begin), where mark is a hash of parameter and place. Pieces that
// cover a parameter once add up to mark(numel) - mark(0), however they are cut and on whichever ranks they lie; a piece that
// is missing, or there twice, leaves another sum. So a whole step is checked by one number, whose sum over the ranks travels
// with what decide exchanges anyway.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ddh/ddh.h"

namespace ddhost {

// How much of each parameter is covered.
class Cover {
 public:
  Cover() = default;
  explicit Cover(size_t n_params) : params_(n_params) {}

  struct Param {
    uint64_t numel = 0;  // elements, each as often as it came
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

  // Throw where a range, or a shard for the optimizer, can't be what its header says.
  void check_range(const ddh_range& range) const;
  void check_ranges(const ddh_range* ranges, uint32_t n_ranges) const;

  // Gradients in [begin, begin + numel) of a flat buffer count in the norm.
  void add_gradient(uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges);
  // One number about all that counted here; over the ranks they add up to expected_gradients() where each element of each
  // trained parameter counted once.
  [[nodiscard]] uint64_t gradients() const { return gradient_marks_; }
  [[nodiscard]] uint64_t expected_gradients() const { return expected_marks_; }
  [[nodiscard]] const Cover& gradient_cover() const { return gradients_; }
  // Throws the sentence about the first parameter whose elements did not count once; `all`: the sum over the ranks.
  [[noreturn]] void fail_gradients(const std::vector<Cover::Param>& all) const;

  // An update of these ranges on this rank. Throws when it is the second of the step.
  void add_update(std::span<const ddh_range> ranges);
  // After a step that was not skipped: all that this rank holds of what the program trains was updated.
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
