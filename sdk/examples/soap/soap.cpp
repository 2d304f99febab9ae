// SPDX-License-Identifier: Apache-2.0
//
// soap: Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al. 2024, "SOAP: Improving and Stabilizing Shampoo using
// Adam", algorithm 3), for parameters that are matrices; AdamW for the others. G is the gradient, t counts updates:
//
//   L = beta2 L + (1 - beta2) G G^T          R = beta2 R + (1 - beta2) G^T G
//   M = beta1 M + (1 - beta1) G              G' = QL^T G QR,  M' = QL^T M QR
//   V = beta2 V + (1 - beta2) G'^2           p -= lr weight_decay p + lr QL (M' / (sqrt(V) + eps)) QR^T
//
// with Adam's bias corrections. QL and QR are the eigenvectors of L and R. Every `every` updates they take one step of the
// power iteration, Q = qr(L Q), in the order of the eigenvalues. The first update only begins L, R, QL and QR, as in the
// authors' program.
//
// A rank must have whole matrices. The slots left, right, left_basis and right_basis have a size of their own. A basis is
// stored as its transpose: its rows are eigenvectors.
#include <numeric>

#include "ddh/sdk/kernels/elementwise.hpp"
#include "linear_algebra.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    ddh::lr_option("3e-3"),
    ddh::two_rates_option("betas", "[0.95, 0.95]", "decay of the first moment; of the second and of L and R"),
    {"eps", "number", "1e-8", ddh::kAtLeast0, "added to the denominator"},
    {"weight_decay", "number", "0.01", ddh::kAtLeast0, "decoupled weight decay"},
    ddh::kDecayGroupsOption,
    {"every", "integer", "10", R"("minimum": 1)", "updates from one step of the eigenbasis to the next"},
    {"max_dim", "integer", "1024", R"("minimum": 1)", "a longer dimension is not rotated, to save memory and time"},
};
constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE, DDH_CONFIG_IFACE, nullptr};

constexpr int kFirstIterations = 5;  // from the identity

// AdamW, of an element of a vector.
struct Formula {
  float keep, beta2, weight1, weight2, inv_sqrt_bias2, eps, step_size;
  DDH_SIMD_INLINE float operator()(float p, float g, float& m, float& v) const {
    m = m + weight1 * (g - m);
    v = beta2 * v + (weight2 * g) * g;
    return p * keep - step_size * (m / (std::sqrt(v) * inv_sqrt_bias2 + eps));
  }
};
// The gradient, summed and scaled.
struct Gradient {
  DDH_SIMD_INLINE float operator()(float, float g) const { return g; }
};
struct Move {
  float keep, step_size;
  DDH_SIMD_INLINE float operator()(float p, float direction) const { return p * keep - step_size * direction; }
};

// to += weight (from - to)
struct Lerp {
  DDH_SIMD_BODY void run(float* to, const float* from, float weight, uint64_t n) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < n; ++i) to[i] += weight * (from[i] - to[i]);
  }
};
// Adam in the eigenbasis: m becomes the direction.
struct Rotated {
  DDH_SIMD_BODY void run(float* m, float* v, const float* g, const Formula& formula, uint64_t n) {
    const Formula f = formula;
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < n; ++i) {
      v[i] = f.beta2 * v[i] + (f.weight2 * g[i]) * g[i];
      m[i] = m[i] / (std::sqrt(v[i]) * f.inv_sqrt_bias2 + f.eps);
    }
  }
};

struct Shape {
  uint64_t rows = 0, columns = 0;  // 0: not a matrix
};

class Soap final : public ddh::DecayingOptimizer {
 public:
  explicit Soap(const ddh_create& create)
      : DecayingOptimizer(create),
        betas_(ddh::betas(options, "betas")),
        eps_(options.f64("eps")),
        every_(options.i64("every")),
        max_dim_(static_cast<uint64_t>(options.i64("max_dim"))) {}

  void attach(const ddh_model_desc& model) override {
    DecayingOptimizer::attach(model);
    uint64_t work = 0;
    for (uint32_t p = 0; p < model.n_params; ++p) {
      const ddh_param_desc& param = *model.params[p];
      Shape& shape = shapes_.emplace_back();
      if (param.n_dims < 2 || param.numel == 0) continue;
      shape.rows = static_cast<uint64_t>(param.shape[0]);
      shape.columns = param.numel / shape.rows;
      if (!rotates(shape.rows) && !rotates(shape.columns)) shape = {};
      work = std::max(work, 3 * param.numel + basis_work(shape.rows) + basis_work(shape.columns));
    }
    if (work > 0) work_ = ddh::Buffer(host, DDH_TAG_ACT, work * sizeof(float), "workspace of soap", 0, DDH_MEM_HOST);
  }

  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override { return kSlots; }
  [[nodiscard]] int32_t needs(int32_t param) const noexcept override {
    return shape_of(param).rows > 0 ? DDH_NEEDS_WHOLE_PARAM : DDH_NEEDS_NOTHING;
  }
  [[nodiscard]] bool slot_used(uint32_t index, int32_t param) const noexcept override {
    return index <= kExpAvgSq || slot_numel(index, param) > 0;
  }
  [[nodiscard]] uint64_t slot_numel(uint32_t index, int32_t param) const noexcept override {
    const Shape shape = shape_of(param);
    const uint64_t n = index == kLeft || index == kLeftBasis ? shape.rows : shape.columns;
    return rotates(n) ? n * n : 0;
  }

  void update(const ddh_update_args& args) override {
    const ddh_optim_shard& shard = *args.shard;
    ddh::check_shard(shard, static_cast<uint32_t>(kSlots.size()));
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const ddh_range& range = shard.ranges[r];
      if (shape_of(range.param).rows > 0)
        update_matrix(args, r);
      else
        ddh::update_range(*args.block, shard, range, formula_of(step_of(args, range.param), 0), kExpAvg);
    }
  }

 private:
  enum : uint32_t { kExpAvg, kExpAvgSq, kLeft, kRight, kLeftBasis, kRightBasis };
  static constexpr std::array<ddh_slot_desc, 6> kSlots = {{
      {sizeof(ddh_slot_desc), DDH_F32, "exp_avg", DDH_SLOT_PER_ELEMENT, 0},
      {sizeof(ddh_slot_desc), DDH_F32, "exp_avg_sq", DDH_SLOT_PER_ELEMENT, 0},
      {sizeof(ddh_slot_desc), DDH_F32, "left", DDH_SLOT_SIZED, 0},
      {sizeof(ddh_slot_desc), DDH_F32, "right", DDH_SLOT_SIZED, 0},
      {sizeof(ddh_slot_desc), DDH_F32, "left_basis", DDH_SLOT_SIZED, 0},
      {sizeof(ddh_slot_desc), DDH_F32, "right_basis", DDH_SLOT_SIZED, 0},
  }};

  // One side of a matrix: the average of G G^T, or of G^T G, and its basis. n == 0: it is not rotated.
  struct Side {
    uint64_t n = 0;
    float* average = nullptr;
    float* basis = nullptr;
    float* work = nullptr;  // basis_work(n) floats
  };

  [[nodiscard]] const Shape& shape_of(int32_t param) const noexcept { return shapes_[static_cast<size_t>(param)]; }
  [[nodiscard]] bool rotates(uint64_t n) const noexcept { return n > 0 && n <= max_dim_; }
  // For a product, and for orthonormalize_rows.
  [[nodiscard]] uint64_t basis_work(uint64_t n) const noexcept { return rotates(n) ? n * n + n * (n + 2) : 0; }

  // `skipped`: updates that only began the state.
  [[nodiscard]] Formula formula_of(const ddh::ParamStep& step, int64_t skipped) const {
    const auto t = static_cast<double>(step.t - skipped);
    return {ddh::f32(1.0 - step.lr * step.weight_decay),
            ddh::f32(betas_.second),
            ddh::f32(1.0 - betas_.first),
            ddh::f32(1.0 - betas_.second),
            ddh::f32(1.0 / std::sqrt(1.0 - std::pow(betas_.second, t))),
            ddh::f32(eps_),
            ddh::f32(step.lr / (1.0 - std::pow(betas_.first, t)))};
  }

  [[nodiscard]] Side side(const ddh_optim_shard& shard, uint32_t index, uint64_t n, uint32_t slot, float* work) const {
    if (!rotates(n)) return {};
    const uint32_t basis = slot == kLeft ? kLeftBasis : kRightBasis;
    return {n, static_cast<float*>(sized_slot(shard, slot, index)),
            static_cast<float*>(sized_slot(shard, basis, index)), work};
  }

  void update_matrix(const ddh_update_args& args, uint32_t index) {
    const ddh_optim_shard& shard = *args.shard;
    const ddh_range& range = shard.ranges[index];
    const Shape shape = shape_of(range.param);
    const uint64_t numel = range.numel;
    float* gradient = work_.f32();
    float* direction = gradient + numel;
    float* scratch = direction + numel;
    float* const work = scratch + numel;
    const Side left = side(shard, index, shape.rows, kLeft, work);
    const Side right = side(shard, index, shape.columns, kRight, work + basis_work(shape.rows));
    float* const m = static_cast<float*>(shard.slots[kExpAvg]) + range.flat_offset;
    float* const v = static_cast<float*>(shard.slots[kExpAvgSq]) + range.flat_offset;

    ddh::show_range(*args.block, shard, range, Gradient{}, gradient);
    const ddh::ParamStep step = step_of(args, range.param);
    const Formula formula = formula_of(step, 1);
    accumulate(left, right, gradient, scratch, shape, formula.weight2);
    Move move{1.0f, 0.0f};  // of the first update
    if (step.t == 1) {
      begin(left, right, v, scratch, shape);
      std::fill(direction, direction + numel, 0.0f);
    } else {
      ddh::Kernel<Lerp>::run(m, gradient, formula.weight1, numel);
      std::copy(m, m + numel, direction);
      rotate(direction, scratch, shape, left, right);
      rotate(gradient, scratch, shape, left, right);
      ddh::Kernel<Rotated>::run(direction, v, gradient, formula, numel);
      rotate_back(direction, scratch, shape, left, right);
      move = {formula.keep, formula.step_size};
    }
    ddh::ElementPiece whole = ddh::piece_at(shard, {}, range.flat_offset, numel);
    whole.state[0] = direction;
    ddh::move_piece(shard, whole, move);
    if (step.t % every_ == 0) refresh(left, right, v, scratch, shape);
  }

  static void accumulate(const Side& left, const Side& right, const float* g, float* scratch, const Shape& shape,
                         float weight) {
    if (left.n > 0) {
      soap::transpose(scratch, g, shape.rows, shape.columns);
      soap::multiply(left.work, g, scratch, shape.rows, shape.columns, shape.rows);
      ddh::Kernel<Lerp>::run(left.average, left.work, weight, left.n * left.n);
    }
    if (right.n > 0) {
      soap::multiply_transposed(right.work, g, g, shape.columns, shape.rows, shape.columns);
      ddh::Kernel<Lerp>::run(right.average, right.work, weight, right.n * right.n);
    }
  }

  // x = QL^T x QR. It exchanges the two arrays.
  static void rotate(float*& x, float*& scratch, const Shape& shape, const Side& left, const Side& right) {
    if (left.n > 0) {
      soap::multiply(scratch, left.basis, x, shape.rows, shape.rows, shape.columns);
      std::swap(x, scratch);
    }
    if (right.n > 0) {
      soap::transpose(right.work, right.basis, right.n, right.n);
      soap::multiply(scratch, x, right.work, shape.rows, shape.columns, shape.columns);
      std::swap(x, scratch);
    }
  }
  // x = QL x QR^T
  static void rotate_back(float*& x, float*& scratch, const Shape& shape, const Side& left, const Side& right) {
    if (left.n > 0) {
      soap::multiply_transposed(scratch, left.basis, x, shape.rows, shape.rows, shape.columns);
      std::swap(x, scratch);
    }
    if (right.n > 0) {
      soap::multiply(scratch, x, right.basis, shape.rows, shape.columns, shape.columns);
      std::swap(x, scratch);
    }
  }

  static void begin(const Side& left, const Side& right, float* v, float* scratch, const Shape& shape) {
    for (const Side& side : {left, right})
      for (uint64_t i = 0; i < side.n * side.n; ++i) side.basis[i] = i % (side.n + 1) == 0 ? 1.0f : 0.0f;
    for (int i = 0; i < kFirstIterations; ++i) refresh(left, right, v, scratch, shape);
  }

  // One step of the power iteration on both sides. V follows the order of the eigenvectors.
  static void refresh(const Side& left, const Side& right, float* v, float* scratch, const Shape& shape) {
    const uint64_t rows = shape.rows, columns = shape.columns;
    const std::vector<uint64_t> row_of = iterate(left), column_of = iterate(right);
    std::copy(v, v + rows * columns, scratch);
    for (uint64_t i = 0; i < rows; ++i)
      for (uint64_t j = 0; j < columns; ++j)
        v[i * columns + j] =
            scratch[(row_of.empty() ? i : row_of[i]) * columns + (column_of.empty() ? j : column_of[j])];
  }
  // Returns which of the eigenvectors so far each new one continues; empty: the side is not rotated.
  static std::vector<uint64_t> iterate(const Side& side) {
    const uint64_t n = side.n;
    soap::multiply(side.work, side.basis, side.average, n, n, n);  // rows of Q^T L
    std::vector<double> value(n, 0.0);                             // estimates of the eigenvalues
    for (uint64_t i = 0; i < n; ++i)
      for (uint64_t j = 0; j < n; ++j) value[i] += static_cast<double>(side.work[i * n + j]) * side.basis[i * n + j];
    std::vector<uint64_t> order(n);
    std::iota(order.begin(), order.end(), uint64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) { return value[a] > value[b]; });
    for (uint64_t i = 0; i < n; ++i)
      std::copy(side.work + order[i] * n, side.work + (order[i] + 1) * n, side.basis + i * n);
    soap::orthonormalize_rows(side.basis, n, side.work + n * n);
    return order;
  }

  const ddh::Betas betas_;
  const double eps_;
  const int64_t every_;
  const uint64_t max_dim_;
  std::vector<Shape> shapes_;  // per parameter
  ddh::Buffer work_;           // for the largest matrix; update must not allocate
};

}  // namespace

DDH_CXX_PLUGIN(Soap, optimizer, "soap", "0.1.0", "Adam in the eigenbasis of Shampoo's preconditioner",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE);
