// SPDX-License-Identifier: Apache-2.0
//
// adamw8bit: AdamW with moments of 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"). README.md
// says what differs from the paper, and why.
//
//   m  = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   p  = p - lr weight_decay p - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//
// in fp32 on decoded moments, which are then encoded again. A block of 64 elements has one scale for each moment, the largest
// magnitude of the block. An element is a small float, relative to the scale: m has a sign, 3 bits of exponent and 4 of
// fraction; v has 4 bits of each. A value between two codes becomes one of them at random, so that the mean is exact. The
// random number is a function of parameter, element and update, so bits do not depend on sharding.
#include <cmath>

#include "ddh/sdk/kernels/elementwise.hpp"
#include "ddh/sdk/migrate.hpp"

// State version 1 had scales in fp32.
#ifndef ADAMW8BIT_STATE_VERSION
#define ADAMW8BIT_STATE_VERSION 2
#endif

namespace {

constexpr ddh::Option kOptions[] = {
    ddh::lr_option("3e-4"),
    ddh::two_rates_option("betas", "[0.9, 0.999]", "decay of the first and second moment"),
    {"bias_correction", "boolean", "true", "", "divide the moments by 1 - beta^t"},
    {"eps", "number", "1e-8", ddh::kAtLeast0, "added to the denominator"},
    {"weight_decay", "number", "0.01", ddh::kAtLeast0, "decoupled weight decay"},
    ddh::kDecayGroupsOption,
    {"min_numel", "integer", "4096", ddh::kAtLeast0, "parameters of fewer elements keep moments in fp32"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

// How a scale is stored: rounded up, so that no element of the block is larger.
struct Bf16Scale {
  using Stored = uint16_t;
  static constexpr int32_t kDtype = DDH_BF16;
  DDH_SIMD_BODY Stored store(uint32_t bits) { return static_cast<Stored>((bits + 0xffffu) >> 16); }
  DDH_SIMD_BODY float load(Stored stored) { return ddh::Bf16::to_f32(stored); }
};
struct F32Scale {
  using Stored = float;
  static constexpr int32_t kDtype = DDH_F32;
  DDH_SIMD_BODY Stored store(uint32_t bits) { return std::bit_cast<float>(bits); }
  DDH_SIMD_BODY float load(Stored stored) { return stored; }
};
using Scale = std::conditional_t<ADAMW8BIT_STATE_VERSION == 1, F32Scale, Bf16Scale>;

// One element of AdamW, as the shipped adamw computes it.
struct Formula {
  float keep;  // 1 - lr weight_decay
  float beta2;
  float weight1, weight2;  // 1 - beta
  float inv_sqrt_bias2;    // 1 / sqrt(1 - beta2^t)
  float eps;
  float step_size;  // lr / (1 - beta1^t)

  DDH_SIMD_INLINE float operator()(float p, float g, float& m, float& v) const {
    m = m + weight1 * (g - m);
    v = beta2 * v + (weight2 * g) * g;
    const float denom = std::sqrt(v) * inv_sqrt_bias2 + eps;
    return p * keep - step_size * (m / denom);
  }
};

// A piece of a range whose first element is on the grid.
struct Piece {
  ddh::ElementPiece values;  // its state is not used
  uint8_t *m, *v;
  Scale::Stored *m_scale, *v_scale;  // of its blocks
  uint32_t first;                    // its first element in the parameter, modulo 2^32
  uint32_t seed;
};

constexpr uint64_t kBlock = DDH_GRID;

// 32 random bits for an element.
DDH_SIMD_INLINE uint32_t random_bits(uint32_t element, uint32_t seed) {
  uint32_t h = (element + seed) * 0x9E3779B1u;
  h = (h ^ (h >> 15)) * 0x85EBCA77u;
  return h ^ (h >> 13);
}

// A float of kBits bits with 4 bits of fraction, for values from 0 to kLargest = 2 - 1/16. As in IEEE formats, codes of
// exponent 0 are evenly spaced down to 0. The codes of larger values are the upper bits of an fp32, less an offset.
template <uint32_t kBits>
class SmallFloat {
 public:
  static constexpr uint32_t kFraction = 4, kDropped = 23 - kFraction, kCodes = 1u << kBits;
  static constexpr uint32_t kLowest = 2 - (kCodes >> kFraction);  // exponent of the smallest normal value, modulo 2^32
  static constexpr uint32_t kOffset = (127 + kLowest - 1) << kFraction;
  static constexpr float kLargest = 2.0f - 1.0f / 16;
  static constexpr float kNormal = std::bit_cast<float>((127 + kLowest) << 23), kStep = kNormal / 16;

  DDH_SIMD_BODY float decode(uint32_t code) {
    const auto small = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(code)) * kStep);
    return std::bit_cast<float>(choose(code < 1u << kFraction, small, (code + kOffset) << kDropped));
  }
  // Uses 19 bits of `random`.
  DDH_SIMD_BODY uint32_t encode(float value, uint32_t random) {
    const auto bits = static_cast<int32_t>(random & ((1u << kDropped) - 1));
    const float fraction = static_cast<float>(bits) * (1.0f / (1u << kDropped));
    // Only what fits into an integer is converted: a NaN does not.
    const float near = std::bit_cast<float>(choose(value < kNormal, std::bit_cast<uint32_t>(value), 0));
    const auto small = static_cast<uint32_t>(static_cast<int32_t>(near * (1.0f / kStep) + fraction));
    const uint32_t normal = ((std::bit_cast<uint32_t>(value) + static_cast<uint32_t>(bits)) >> kDropped) - kOffset;
    const uint32_t code = choose(value < kNormal, small, normal);
    return code < kCodes ? code : kCodes - 1;
  }

 private:
  // Without a branch, so that loops are vectorized.
  DDH_SIMD_BODY uint32_t choose(bool first, uint32_t a, uint32_t b) {
    const uint32_t mask = 0u - static_cast<uint32_t>(first);
    return (a & mask) | (b & ~mask);
  }
};
using CodeM = SmallFloat<7>;  // of the magnitude
using CodeV = SmallFloat<8>;

DDH_SIMD_INLINE uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffu; }

// The stored scale of a block with this largest magnitude. A value that is not finite makes it a NaN, so that it is seen.
DDH_SIMD_INLINE uint32_t scale_bits(uint32_t largest) {
  constexpr uint32_t kInfinity = 0x7f800000u, kNan = 0x7fc00000u, kSmallest = 0x00800000u;
  return largest >= kInfinity ? kNan : largest < kSmallest ? 0 : largest;
}

template <class Store, bool kTwoSources>
struct UpdateBlocks {
  DDH_SIMD_BODY void run(const Piece& piece, const Formula& formula) {
    for (uint64_t done = 0; done < piece.values.numel; done += kBlock) {
      const uint64_t left = piece.values.numel - done;
      block(piece, done, left < kBlock ? left : kBlock, formula);
    }
  }

  DDH_SIMD_BODY void block(const Piece& piece, uint64_t at, uint64_t numel, const Formula& formula) {
    const Formula f = formula;
    const float grad_scale = piece.values.grad_scale;
    float* const p = piece.values.param + at;
    const float* const a = piece.values.grad_a + at;
    const float* const b = kTwoSources ? piece.values.grad_b + at : nullptr;
    uint16_t* const lowp = piece.values.lowp == nullptr ? nullptr : piece.values.lowp + at;
    uint8_t* const m_code = piece.m + at;
    uint8_t* const v_code = piece.v + at;
    const float m_unit = Scale::load(piece.m_scale[at / kBlock]) / CodeM::kLargest;
    const float v_unit = Scale::load(piece.v_scale[at / kBlock]) / CodeV::kLargest;
    alignas(64) float m[kBlock], v[kBlock];
    uint32_t m_largest = 0, v_largest = 0;
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) {
      const uint32_t signed_code = m_code[i], sign = (signed_code & 0x80u) << 24;
      float m1 = std::bit_cast<float>(std::bit_cast<uint32_t>(CodeM::decode(signed_code & 0x7fu) * m_unit) | sign);
      float v1 = CodeV::decode(v_code[i]) * v_unit;
      const float p1 = f(p[i], (kTwoSources ? a[i] + b[i] : a[i]) * grad_scale, m1, v1);
      p[i] = p1;
      Store::store(lowp, i, p1);
      m[i] = m1;
      v[i] = v1;
      m_largest = magnitude(m1) > m_largest ? magnitude(m1) : m_largest;
      v_largest = magnitude(v1) > v_largest ? magnitude(v1) : v_largest;
    }
    const auto m_scale = Scale::store(scale_bits(m_largest)), v_scale = Scale::store(scale_bits(v_largest));
    piece.m_scale[at / kBlock] = m_scale;
    piece.v_scale[at / kBlock] = v_scale;
    const float m_inverse = m_scale == 0 ? 0.0f : CodeM::kLargest / Scale::load(m_scale);
    const float v_inverse = v_scale == 0 ? 0.0f : CodeV::kLargest / Scale::load(v_scale);
    const uint32_t first = piece.first + static_cast<uint32_t>(at), seed = piece.seed;
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) {
      const uint32_t random = random_bits(first + static_cast<uint32_t>(i), seed);
      const uint32_t sign = std::bit_cast<uint32_t>(m[i]) >> 31 << 7;
      m_code[i] = static_cast<uint8_t>(CodeM::encode(std::fabs(m[i]) * m_inverse, random) | sign);
      // Not 0 for a v above 0, because the root of v divides.
      const uint32_t code = CodeV::encode(v[i] * v_inverse, random >> 13);
      v_code[i] = static_cast<uint8_t>(code == 0 && v[i] > 0.0f ? 1 : code);
    }
  }
};

class AdamW8bit final : public ddh::DecayingOptimizer {
 public:
  explicit AdamW8bit(const ddh_create& create)
      : DecayingOptimizer(create),
        betas_(ddh::betas(options, "betas")),
        bias_correction_(options.flag("bias_correction")),
        eps_(options.f64("eps")),
        min_numel_(static_cast<uint64_t>(options.i64("min_numel"))) {}

  void attach(const ddh_model_desc& model) override {
    DecayingOptimizer::attach(model);
    for (uint32_t p = 0; p < model.n_params; ++p) is_small_.push_back(model.params[p]->numel < min_numel_);
  }
  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override { return kSlots; }
  [[nodiscard]] bool slot_used(uint32_t index, int32_t param) const noexcept override {
    return is_small_[static_cast<size_t>(param)] == (index >= kExpAvg);
  }

  void update(const ddh_update_args& args) override {
    const ddh_optim_shard& shard = *args.shard;
    ddh::check_shard(shard, static_cast<uint32_t>(kSlots.size()));
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const ddh_range& range = shard.ranges[r];
      const ddh::ParamStep step = step_of(args, range.param);
      if (is_small_[static_cast<size_t>(range.param)])
        ddh::update_range(*args.block, shard, range, formula_of(step), kExpAvg);
      else
        update_blocks(args, range, step);
    }
  }

  // Version 1 had the same slots; its scales were fp32.
  const void* interface(std::string_view id) const override {
    return id == DDH_MIGRATE_IFACE ? ddh::migrate_table<AdamW8bit>() : DecayingOptimizer::interface(id);
  }
  [[nodiscard]] ddh_migrate_source migrate_source(const ddh_migrate_args& to) const {
    const ddh_slot_desc& slot = kSlots.at(static_cast<size_t>(to.slot));
    return ddh::saved_slot(slot.name, slot.extent == DDH_SLOT_PER_BLOCK ? DDH_F32 : slot.dtype, slot.extent);
  }
  void migrate(const ddh_migrate_args& to, uint64_t, uint64_t numel, const void* src, void* dst) const {
    const ddh_slot_desc& slot = kSlots.at(static_cast<size_t>(to.slot));
    if (slot.extent != DDH_SLOT_PER_BLOCK) {
      std::memcpy(dst, src, numel * ddh_dtype_bytes(slot.dtype));
      return;
    }
    for (uint64_t i = 0; i < numel; ++i)
      static_cast<uint16_t*>(dst)[i] = ddh::Bf16::from_f32(static_cast<const float*>(src)[i]);
  }

 private:
  enum : uint32_t { kM, kV, kMScale, kVScale, kExpAvg, kExpAvgSq };
  static constexpr std::array<ddh_slot_desc, 6> kSlots = {{
      {sizeof(ddh_slot_desc), DDH_U8, "exp_avg_8bit", DDH_SLOT_PER_ELEMENT, 0},
      {sizeof(ddh_slot_desc), DDH_U8, "exp_avg_sq_8bit", DDH_SLOT_PER_ELEMENT, 0},
      {sizeof(ddh_slot_desc), Scale::kDtype, "exp_avg_scale", DDH_SLOT_PER_BLOCK, 0},
      {sizeof(ddh_slot_desc), Scale::kDtype, "exp_avg_sq_scale", DDH_SLOT_PER_BLOCK, 0},
      {sizeof(ddh_slot_desc), DDH_F32, "exp_avg", DDH_SLOT_PER_ELEMENT, 0},
      {sizeof(ddh_slot_desc), DDH_F32, "exp_avg_sq", DDH_SLOT_PER_ELEMENT, 0},
  }};

  [[nodiscard]] Formula formula_of(const ddh::ParamStep& step) const {
    const auto t = static_cast<double>(step.t);
    const auto bias = [&](double beta) { return bias_correction_ ? 1.0 - std::pow(beta, t) : 1.0; };
    return {ddh::f32(1.0 - step.lr * step.weight_decay),
            ddh::f32(betas_.second),
            ddh::f32(1.0 - betas_.first),
            ddh::f32(1.0 - betas_.second),
            ddh::f32(1.0 / std::sqrt(bias(betas_.second))),
            ddh::f32(eps_),
            ddh::f32(step.lr / bias(betas_.first))};
  }

  void update_blocks(const ddh_update_args& args, const ddh_range& range, const ddh::ParamStep& step) const {
    const ddh_optim_shard& shard = *args.shard;
    const Formula formula = formula_of(step);
    const auto seed = static_cast<uint32_t>(static_cast<uint64_t>(step.t) * 0xC2B2AE3D27D4EB4F >> 16) ^
                      static_cast<uint32_t>(range.param) * 0x27D4EB2Fu;
    ddh::for_each_piece(*args.block, shard, range, [&](uint64_t at, uint64_t numel, const float* a, const float* b) {
      Piece piece{};
      piece.values = ddh::piece_at(shard, {}, at, numel);
      piece.values.grad_a = a;
      piece.values.grad_b = b;
      piece.values.grad_scale = ddh::gradient_scale(*args.block);
      piece.m = static_cast<uint8_t*>(shard.slots[kM]) + at;
      piece.v = static_cast<uint8_t*>(shard.slots[kV]) + at;
      piece.m_scale = static_cast<Scale::Stored*>(shard.slots[kMScale]) + at / kBlock;
      piece.v_scale = static_cast<Scale::Stored*>(shard.slots[kVScale]) + at / kBlock;
      piece.first = static_cast<uint32_t>(range.param_offset + (at - range.flat_offset));
      piece.seed = seed;
      ddh::with_lowp(shard.lowp, shard.lowp_dtype, [&](auto store) {
        if (b != nullptr)
          ddh::Kernel<UpdateBlocks<decltype(store), true>>::run(piece, formula);
        else
          ddh::Kernel<UpdateBlocks<decltype(store), false>>::run(piece, formula);
      });
    });
  }

  const ddh::Betas betas_;
  const bool bias_correction_;
  const double eps_;
  const uint64_t min_numel_;
  std::vector<bool> is_small_;  // per parameter
};

}  // namespace

DDH_CXX_PLUGIN(AdamW8bit, optimizer, "adamw8bit", ADAMW8BIT_STATE_VERSION == 1 ? "1.0" : "2.0",
               "AdamW with moments of 8 bits in blocks of 64", ddh::kSchemaOf<kOptions>, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE, .state_version = ADAMW8BIT_STATE_VERSION,
               .oldest_state_version = 1);
