// SPDX-License-Identifier: Apache-2.0
//
// muon: orthogonalized momentum for matrices (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural
// networks"), in the form of torch.optim.Muon; adamw for the rest:
//
//   m  = momentum m + (1 - momentum) g          d = (1 - momentum) g + momentum m (nesterov), or m
//   O  = Newton-Schulz of d (newton_schulz.hpp)
//   p -= lr weight_decay p                      p -= lr scale O
//
// scale: sqrt(max(1, rows / columns)) (adjust_lr_fn=original), or 0.2 sqrt(max(rows, columns)) (match_rms_adamw). A
// parameter of more than two dimensions is a matrix of its first by all other dimensions. adamw, with its own options,
// updates vectors, sparse gradients, and the names in adamw_params (embeddings, heads).
//
// A rank must have whole matrices. State: one fp32 number per element of a matrix, two for the rest. torch multiplies
// in bf16, this plugin in fp32.
#include <fnmatch.h>

#include <optional>
#include <sstream>

#include "adam.hpp"
#include "ddh/sdk/stream.hpp"
#include "muon.hpp"
#include "newton_schulz.hpp"
#include "newton_schulz_kernels.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    ddh::lr_option(
        "0.02",
        "learning rate of matrices; the schedule computes the rate of each step from it, and scales adamw_lr alike"),
    {"momentum", "number", "0.95", R"("minimum": 0, "maximum": 1)", "decay of the momentum"},
    {"nesterov", "boolean", "true", "", "use Nesterov momentum"},
    {"weight_decay", "number", "0", ddh::kAtLeast0, "decoupled weight decay of matrices"},
    {"ns_steps", "integer", "5", R"("minimum": 1, "maximum": 100)",
     "steps of the Newton-Schulz iteration; each costs about 3 m^2 n + m^3 operations for an m x n matrix, m <= n"},
    {"ns_coefficients", "array", "[3.4445, -4.7750, 2.0315]",
     R"("items": {"type": "number"}, "minItems": 3, "maxItems": 3)", "coefficients of its polynomial"},
    {"eps", "number", "1e-7", ddh::kAbove0, "a momentum whose norm is below this is divided by this"},
    {"adjust_lr_fn", "string", R"("original")", R"("enum": ["original", "match_rms_adamw", "none"])",
     "factor on the update: original: sqrt(max(1, rows/columns)); match_rms_adamw: 0.2 sqrt(max(rows, columns)); "
     "none: 1"},
    {"adamw_params", "string", R"("*embed*,*wte*,*wpe*,*lm_head*,head.*")", "",
     "names of matrices that adamw updates: patterns with * and ?, separated by commas"},
    {"adamw_lr", "number", "3e-4", ddh::kAtLeast0, "adamw: learning rate"},
    ddh::two_rates_option("adamw_betas", "[0.9, 0.95]", "adamw: decay of the first and second moment"),
    {"adamw_eps", "number", "1e-10", ddh::kAtLeast0, "adamw: added to the denominator"},
    {"adamw_weight_decay", "number", "0", ddh::kAtLeast0, "adamw: decoupled weight decay"},
    ddh::kDecayGroupsOption,
};
constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE, DDH_CONFIG_IFACE, nullptr};

using muon::Momentum;
using muon::Move;

bool matches(const std::string& patterns, const char* name) {
  std::istringstream list(patterns);
  for (std::string pattern; std::getline(list, pattern, ',');)
    if (fnmatch(pattern.c_str(), name, 0) == 0) return true;
  return false;
}

class Muon final : public ddh::DecayingOptimizer {
 public:
  explicit Muon(const ddh_create& create)
      : DecayingOptimizer(create),
        lr_(options.f64("lr")),
        momentum_(options.f64("momentum")),
        nesterov_(options.flag("nesterov")),
        steps_(options.i64("ns_steps")),
        eps_(options.f64("eps")),
        adjust_(options.text("adjust_lr_fn")),
        adamw_params_(options.text("adamw_params")),
        adamw_lr_(options.f64("adamw_lr")),
        adamw_{ddh::betas(options, "adamw_betas"), options.f64("adamw_eps")},
        adamw_weight_decay_(options.f64("adamw_weight_decay")) {
    const auto c = options.f64s<3>("ns_coefficients");
    coefficients_ = {static_cast<float>(c[0]), static_cast<float>(c[1]), static_cast<float>(c[2])};
    if (lr_ == 0 && adamw_lr_ > 0)
      ddh::fail(DDH_INVALID_ARGUMENT, options.key("lr"), " is 0 and ", options.key("adamw_lr"), " ", adamw_lr_,
                ", but adamw_lr is scaled by the step's rate / lr; give lr a value above 0");
  }

  void attach(const ddh_model_desc& model) override {
    DecayingOptimizer::attach(model);
    shapes_.assign(model.n_params, {0, 0});
    uint64_t matrices = 0, elements = 0, workspace_numel = 0;
    for (uint32_t p = 0; p < model.n_params; ++p) {
      const ddh_param_desc& param = *model.params[p];
      const bool by_adamw = param.n_dims < 2 || (param.attributes & DDH_PARAM_SPARSE_GRAD) != 0 || param.numel == 0 ||
                            matches(adamw_params_, param.name);
      if (by_adamw) continue;
      const auto rows = static_cast<uint64_t>(param.shape[0]);
      shapes_[p] = {rows, param.numel / rows};
      workspace_numel =
          std::max(workspace_numel, param.numel + newton_schulz::scratch_numel(shapes_[p].small(), shapes_[p].large()));
      ++matrices;
      elements += param.numel;
    }
    if (workspace_numel > 0 && kernels_.can_run(host)) workspace_used_.emplace(host);
    if (workspace_numel > 0)
      workspace_ = ddh::Buffer(host, DDH_TAG_ACT, workspace_numel * sizeof(float), "workspace of muon", 0,
                               kernels_.can_run(host) ? DDH_MEM_DEVICE : DDH_MEM_HOST);
    host.log(DDH_LOG_INFO, matrices, " of ", model.n_params, " parameters are matrices for muon (", elements,
             " elements); adamw updates the others");
  }

  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override { return kSlots; }
  [[nodiscard]] bool slot_used(uint32_t index, int32_t param) const noexcept override {
    return is_matrix(param) == (index == kMomentum);
  }
  [[nodiscard]] int32_t needs(int32_t param) const noexcept override {
    return is_matrix(param) ? DDH_NEEDS_WHOLE_PARAM : DDH_NEEDS_NOTHING;
  }

  void update(const ddh_update_args& args) override {
    const ddh_optim_shard& shard = *args.shard;
    ddh::check_shard(shard, static_cast<uint32_t>(kSlots.size()));
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const ddh_range& range = shard.ranges[r];
      if (is_matrix(range.param))
        update_matrix(args, range);
      else
        update_other(args, range);
    }
  }

 private:
  enum : uint32_t { kMomentum, kExpAvg, kExpAvgSq };

  [[nodiscard]] bool is_matrix(int32_t param) const noexcept { return shapes_[static_cast<size_t>(param)].rows != 0; }

  void update_other(const ddh_update_args& args, const ddh_range& range) const {
    ddh::ParamStep step = step_of(args, range.param);
    step.lr = lr_ > 0 ? args.block->lr * (adamw_lr_ / lr_) : 0.0;
    step.weight_decay = decays(range.param) ? adamw_weight_decay_ : 0.0;
    const auto formula = adam::formula_of<adam::Decay::decoupled>(adamw_, step);
    if (!kernels_.use(host, args, range, formula, kExpAvg))
      ddh::update_range(*args.block, *args.shard, range, formula, kExpAvg);
  }

  void update_matrix(const ddh_update_args& args, const ddh_range& range) {
    const ddh_optim_shard& shard = *args.shard;
    const newton_schulz::Shape shape = shapes_[static_cast<size_t>(range.param)];
    if (range.param_offset != 0 || range.numel != shape.rows * shape.columns)
      ddh::fail(DDH_FAILED_PRECONDITION, "muon got ", range.numel, " of ", shape.rows * shape.columns,
                " elements of a matrix; it needs whole matrices");
    const uint64_t scratch = newton_schulz::scratch_numel(shape.small(), shape.large());
    float* const direction = workspace_.f32() + scratch;
    const float weight = ddh::f32(1.0 - momentum_);
    const Momentum momentum{weight, nesterov_ ? weight : 0.0f};
    const ddh::ParamStep step = step_of(args, range.param);
    const Move move{ddh::f32(1.0 - step.lr * step.weight_decay), ddh::f32(step.lr * scale_of(shape))};
    if (kernels_.can_run(host)) return queue_matrix(args, range, direction, momentum, move);
    ddh::show_range(*args.block, shard, range, momentum, direction);
    newton_schulz::orthogonalize(direction, shape, coefficients_, steps_, eps_, workspace_.f32());
    ddh::ElementPiece whole = ddh::piece_at(shard, {}, range.flat_offset, range.numel);
    whole.state[0] = direction;
    ddh::move_piece(shard, whole, move);
  }

  // The same by kernels. Streams use the workspace in turn.
  void queue_matrix(const ddh_update_args& args, const ddh_range& range, float* direction, const Momentum& momentum,
                    const Move& move) {
    workspace_used_->wait(args.stream);
    kernels_.show(host, args, range, momentum, direction);
    newton_schulz::orthogonalize_by_kernels(
        direction, shapes_[static_cast<size_t>(range.param)], coefficients_, steps_, eps_, workspace_.f32(),
        [&](const auto& kernel) {
          const ddh::KernelCall call{DDH_KERNEL_IMAGE(muon), kernel.kKernel, &kernel, sizeof kernel, kernel.work()};
          ddh::launch_kernel(host, call, args.stream);
        });
    kernels_.move(host, args, range, move, direction);
    workspace_used_->record(args.stream);
  }

  [[nodiscard]] double scale_of(const newton_schulz::Shape& shape) const {
    const auto rows = static_cast<double>(shape.rows), columns = static_cast<double>(shape.columns);
    if (adjust_ == "original") return std::sqrt(std::max(1.0, rows / columns));
    if (adjust_ == "match_rms_adamw") return 0.2 * std::sqrt(std::max(rows, columns));
    return 1.0;
  }

  static constexpr auto kSlots = ddh::slots("momentum_buffer", "exp_avg", "exp_avg_sq");

  const double lr_, momentum_;
  const bool nesterov_;
  const int64_t steps_;
  const double eps_;
  const std::string adjust_, adamw_params_;
  const double adamw_lr_;
  const adam::Rates adamw_;
  const double adamw_weight_decay_;
  newton_schulz::Coefficients coefficients_{};
  std::vector<newton_schulz::Shape> shapes_;  // per parameter; 0 rows: updated by adamw
  ddh::Buffer workspace_;                     // for the largest matrix; allocated in attach: update must not allocate
  const ddh::ElementKernels kernels_{DDH_KERNEL_IMAGE(muon)};
  std::optional<ddh::Event> workspace_used_;  // the last use by kernels
};

}  // namespace

DDH_CXX_PLUGIN(Muon, optimizer, "muon", "0.1.0", "orthogonalized momentum for matrices, adamw for the rest",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_CLIP_VALUE | kKernelCaps,
               .wants = kKernelWants);
