// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/kernels/elementwise.hpp: the base class of element-wise optimizers: the update of an element needs only its
// value, gradient and state. Such an optimizer is a table of options, the names of its slots, and a formula:
//
//   class Momentum final : public ddh::ElementwiseOptimizer<Momentum> {
//    public:
//     using ElementwiseOptimizer::ElementwiseOptimizer;
//     static constexpr auto kSlots = ddh::slots("momentum");
//     struct Formula {
//       float lr, decay;
//       DDH_SIMD_INLINE float operator()(float p, float g, float& m) const {
//         m = 0.9f * m + g + decay * p;
//         return p - lr * m;
//       }
//     };
//     Formula formula(const ddh::ParamStep& s) const { return {ddh::f32(s.lr), ddh::f32(s.weight_decay)}; }
//   };
//
// The base makes one pass over the elements of a shard, at the width of the processor's vectors. It sums the sources of
// the gradient, scales it, clips it, and writes the low-precision copy of the parameters. Scalars are computed in double,
// elements in fp32. The result does not depend on the vector width or on sharding.
//
// With kernels (element_kernels.hpp) the same formula updates on a device that runs them: the optimizer names its image
// and a formula its kernel.
//
// Options that every such optimizer has: weight_decay and decay_groups.
#pragma once

#include <array>
#include <span>
#include <type_traits>
#include <vector>

#include "ddh/sdk/kernels/element_kernels.hpp"
#include "ddh/sdk/kernels/lowp.hpp"
#include "ddh/sdk/optimizer.hpp"
#include "ddh/sdk/options.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Rows for tables of options.
constexpr Option lr_option(
    std::string_view default_value,
    std::string_view description = "learning rate; the schedule computes the rate of each step from it") {
  return {"lr", "number", default_value, kAtLeast0, description};
}
constexpr Option two_rates_option(std::string_view name, std::string_view default_value, std::string_view description) {
  return {name, "array", default_value, R"("items": {"type": "number", "minimum": 0}, "minItems": 2, "maxItems": 2)",
          description};
}
inline constexpr Option kDecayGroupsOption = {
    "decay_groups", "boolean", "true", "",
    "true: no weight decay for parameters that the model marks as no_decay (biases, norms); false: all decay"};

// Slots with these names, each with one fp32 number per element.
template <class... Names>
constexpr std::array<ddh_slot_desc, sizeof...(Names)> slots(Names... names) {
  return {{{sizeof(ddh_slot_desc), DDH_F32, names, DDH_SLOT_PER_ELEMENT, 0}...}};
}

constexpr float f32(double value) { return static_cast<float>(value); }

// The scalars of one update of one parameter, for the formula.
struct ParamStep {
  double lr;            // learning rate of this step
  int64_t t;            // updates of this parameter, including this one
  double weight_decay;  // 0 if the parameter does not decay
};

// numel elements of every array.
struct ElementPiece {
  float* param;
  std::array<float*, 2> state;  // slots; nullptr if the formula has fewer
  const float* grad_a;          // gradient = (grad_a + grad_b) * grad_scale
  const float* grad_b;          // nullptr: one source
  float grad_scale;
  uint16_t* lowp;  // nullptr: no copy
  uint64_t numel;
};

// The elements of a shard from `at` on. `state`: bases of the slots.
ElementPiece piece_at(const ddh_optim_shard& shard, std::array<float*, 2> state, uint64_t at, uint64_t numel);

namespace detail {
// The number of state values in a formula's arguments: float operator()(float p, float g, float& a, float& b) const has
// two.
template <class Function>
struct StateCount;
template <class Result, class Formula, class... State>
struct StateCount<Result (Formula::*)(float, float, State&...) const> {
  static constexpr uint32_t kValue = sizeof...(State);
  static_assert(kValue <= 2, "an element-wise formula has at most two numbers of state");
};
template <class Formula>
inline constexpr uint32_t kStateCount = StateCount<decltype(&Formula::operator())>::kValue;

// The gradient of element i, and a formula applied to one element of a piece.
template <bool kTwoSources>
DDH_SIMD_INLINE float gradient_at(const float* a, const float* b, float scale, uint64_t i) {
  const float sum = kTwoSources ? a[i] + b[i] : a[i];
  return sum * scale;
}
template <class Formula>
DDH_SIMD_INLINE auto apply_at(const Formula& f, float p, float g, float* x, float* y, uint64_t i) {
  if constexpr (kStateCount<Formula> == 0) {
    return f(p, g);
  } else if constexpr (kStateCount<Formula> == 1) {
    float x1 = x[i];
    const auto result = f(p, g, x1);
    x[i] = x1;
    return result;
  } else {
    float x1 = x[i], y1 = y[i];
    const auto result = f(p, g, x1, y1);
    x[i] = x1;
    y[i] = y1;
    return result;
  }
}

template <class Formula, class Store, bool kTwoSources>
DDH_SIMD_INLINE void element_loop(const ElementPiece& piece, const Formula& formula) {
  const Formula f = formula;
  const float scale = piece.grad_scale;
  float* const p = piece.param;
  float* const x = piece.state[0];
  float* const y = piece.state[1];
  const float* const a = piece.grad_a;
  const float* const b = piece.grad_b;
  uint16_t* const lowp = piece.lowp;
  const uint64_t numel = piece.numel;
  DDH_SIMD_LOOP
  for (uint64_t i = 0; i < numel; ++i) {
    const float g = gradient_at<kTwoSources>(a, b, scale, i);
    const float p1 = apply_at(f, p[i], g, x, y, i);
    p[i] = p1;
    Store::store(lowp, i, p1);
  }
}

template <class Formula, class Store>
struct ElementUpdate {
  DDH_SIMD_BODY void run(const ElementPiece& piece, const Formula& formula) {
    if (piece.grad_b != nullptr)
      element_loop<Formula, Store, true>(piece, formula);
    else
      element_loop<Formula, Store, false>(piece, formula);
  }
};

template <class Formula, bool kTwoSources>
DDH_SIMD_INLINE void show_loop(const ElementPiece& piece, const Formula& formula, float* first, float* second) {
  const Formula f = formula;
  const float scale = piece.grad_scale;
  const float* const p = piece.param;
  float* const x = piece.state[0];
  float* const y = piece.state[1];
  const float* const a = piece.grad_a;
  const float* const b = piece.grad_b;
  const uint64_t numel = piece.numel;
  DDH_SIMD_LOOP
  for (uint64_t i = 0; i < numel; ++i) {
    const float g = gradient_at<kTwoSources>(a, b, scale, i);
    const auto shown = apply_at(f, p[i], g, x, y, i);
    if constexpr (std::is_same_v<decltype(shown), const float>) {
      first[i] = shown;
    } else {
      first[i] = shown.first;
      second[i] = shown.second;
    }
  }
}

template <class Formula>
struct ElementShow {
  DDH_SIMD_BODY void run(const ElementPiece& piece, const Formula& formula, float* first, float* second) {
    if (piece.grad_b != nullptr)
      show_loop<Formula, true>(piece, formula, first, second);
    else
      show_loop<Formula, false>(piece, formula, first, second);
  }
};

template <class Formula, class Store>
struct ElementMove {
  DDH_SIMD_BODY void run(const ElementPiece& piece, const Formula& formula) {
    const Formula f = formula;
    float* const p = piece.param;
    const float* const x = piece.state[0];
    const float* const y = piece.state[1];
    uint16_t* const lowp = piece.lowp;
    const uint64_t numel = piece.numel;
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) {
      float p1 = 0;
      if constexpr (std::is_invocable_v<const Formula&, float, float, float>)
        p1 = f(p[i], x[i], y[i]);
      else
        p1 = f(p[i], x[i]);
      p[i] = p1;
      Store::store(lowp, i, p1);
    }
  }
};

// Calls use(piece) for the pieces of a range with their gradients. The state is in the shard's slots from `first_slot` on.
template <class Formula, class Use>
void for_each_element_piece(const ddh_step_block& block, const ddh_optim_shard& shard, const ddh_range& range,
                            uint32_t first_slot, Use&& use) {
  std::array<float*, 2> state{};
  for (uint32_t i = 0; i < kStateCount<Formula>; ++i) state[i] = static_cast<float*>(shard.slots[first_slot + i]);
  for_each_piece(block, shard, range, [&](uint64_t at, uint64_t numel, const float* a, const float* b) {
    ElementPiece piece = piece_at(shard, state, at, numel);
    piece.grad_a = a;
    piece.grad_b = b;
    piece.grad_scale = gradient_scale(block);
    use(piece, at - range.flat_offset);
  });
}
}  // namespace detail

// Applies a formula to one range of a shard: p = formula(p, g, state...). The state is in the shard's slots from
// `first_slot` on.
template <class Formula>
void update_range(const ddh_step_block& block, const ddh_optim_shard& shard, const ddh_range& range,
                  const Formula& formula, uint32_t first_slot = 0) {
  detail::for_each_element_piece<Formula>(block, shard, range, first_slot, [&](const ElementPiece& piece, uint64_t) {
    with_lowp(shard.lowp, shard.lowp_dtype,
              [&](auto store) { Kernel<detail::ElementUpdate<Formula, decltype(store)>>::run(piece, formula); });
  });
}

// The first pass of an update in two passes. It changes the state but not the parameters. `formula` returns one float,
// or two (Shown); they are stored in `first` and `second`, which begin at the first element of the range.
struct Shown {
  float first, second;
};
template <class Formula>
void show_range(const ddh_step_block& block, const ddh_optim_shard& shard, const ddh_range& range,
                const Formula& formula, float* first, float* second = nullptr) {
  detail::for_each_element_piece<Formula>(block, shard, range, 0, [&](const ElementPiece& piece, uint64_t done) {
    Kernel<detail::ElementShow<Formula>>::run(piece, formula, first + done, second == nullptr ? second : second + done);
  });
}
// The second pass changes the parameters: p = formula(p, x), or formula(p, x, y), with x and y from piece.state.
template <class Formula>
void move_piece(const ddh_optim_shard& shard, const ElementPiece& piece, const Formula& formula) {
  with_lowp(shard.lowp, shard.lowp_dtype,
            [&](auto store) { Kernel<detail::ElementMove<Formula, decltype(store)>>::run(piece, formula); });
}

// An optimizer with the options weight_decay and decay_groups.
class DecayingOptimizer : public Optimizer {
 public:
  explicit DecayingOptimizer(const ddh_create& create);
  void attach(const ddh_model_desc& model) override;

 protected:
  // Whether a parameter of the model decays.
  [[nodiscard]] bool decays(int32_t param) const { return decays_.at(static_cast<size_t>(param)) != 0; }
  [[nodiscard]] ParamStep step_of(const ddh_update_args& args, int32_t param) const;

 private:
  const double weight_decay_;
  const bool decay_groups_;
  std::vector<uint8_t> decays_;  // per parameter of the model
};

// `Self` is the optimizer. It has kSlots and formula(step), or with_formula(step, use) if it chooses between formulas.
template <class Self>
class ElementwiseOptimizer : public DecayingOptimizer {
 public:
  using DecayingOptimizer::DecayingOptimizer;
  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override { return Self::kSlots; }

  void update(const ddh_update_args& args) override {
    const ddh_optim_shard& shard = *args.shard;
    check_shard(shard, static_cast<uint32_t>(slots().size()));
    for (uint32_t r = 0; r < shard.n_ranges; ++r)
      static_cast<const Self&>(*this).with_formula(step_of(args, shard.ranges[r].param), [&](const auto& formula) {
        if (!kernels_.use(host, args, shard.ranges[r], formula))
          update_range(*args.block, shard, shard.ranges[r], formula);
      });
  }

  // Calls use(formula) with the formula of one update of one parameter.
  template <class Use>
  void with_formula(const ParamStep& step, Use&& use) const {
    use(static_cast<const Self&>(*this).formula(step));
  }

 protected:
  // `image`: PTX with the kernels of the formulas; nullptr: there are none.
  ElementwiseOptimizer(const ddh_create& create, const char* image) : DecayingOptimizer(create), kernels_(image) {}

 private:
  const ElementKernels kernels_{nullptr};
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
