// SPDX-License-Identifier: Apache-2.0
#include "cad_mllm.hpp"

#include "../ops/matrix.hpp"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "../images/transform.hpp"
#include "text.hpp"

namespace cad {
namespace {

const char* const kStageNames[kStages] = {"stage1_text", "stage2_text_pc", "stage3_all"};
const char* const kEvalNames[kStages] = {"eval_text", "eval_text_pc", "eval_all"};
const std::vector<std::string> kMetrics = {"loss", "accuracy", "exact"};

CadBatch& batch_of_handle(ddh_batch* batch) { return *reinterpret_cast<CadBatch*>(batch); }

int32_t stage_of(int32_t program) { return program % kStages; }

// `wanted`, if the stage has these inputs. `who`: begins the sentence that refuses them.
Inputs known_to(int32_t stage, const std::string& who, Inputs wanted) {
  const Inputs known = kStageInputs[stage];
  if ((wanted.image && !known.image) || (wanted.points && !known.points))
    ddh::fail(DDH_INVALID_ARGUMENT, who, " inputs that ", kStageNames[stage],
              " does not know; use a later stage, as with train.programs=[\"stage3_all\"]");
  return wanted;
}

}  // namespace

const char* const kNeeds[] = {DDH_CONFIG_IFACE, DDH_ALLOC_IFACE, DDH_COMM_IFACE,
                              DDH_STREAM_IFACE, DDH_COPY_IFACE,  nullptr};

class CadMllm::UnitCall final : public Call {
 public:
  UnitCall(CadMllm& model, const UnitRun& run, const CadTensors& its_batch, const std::vector<at::Tensor>& params)
      : Call(its_batch),
        model_(model),
        run_(run),
        params_(params),
        places_(model.units_[static_cast<size_t>(run.unit)].places) {}
  [[nodiscard]] const at::Tensor& operator[](const std::string& name) const override {
    return params_[places_.at(name)];
  }
  [[nodiscard]] bool has(const std::string& name) const override { return places_.contains(name); }
  [[nodiscard]] at::Tensor linear(const std::string& layer, const at::Tensor& x) override {
    const std::string bias = layer + ".bias";
    return model_.linear(run_, params_, places_.at(layer + ".weight"),
                         has(bias) ? std::optional(places_.at(bias)) : std::nullopt, x);
  }
  [[nodiscard]] at::Tensor dropout(const at::Tensor& x, double probability) override {
    return model_.dropout(run_, x, probability, site_++);
  }

 private:
  CadMllm& model_;
  const UnitRun& run_;
  const std::vector<at::Tensor>& params_;
  const std::map<std::string, size_t>& places_;
  uint64_t site_ = 0;  // which of the unit's dropouts comes next
};

CadMllm::CadMllm(const ddh_create& create)
    : TorchModel(create, ddh::TorchThreads::kOne, ddh::Host(create.host).text("model.operators")),
      config_(host),
      products_(host, device(), "cad_mllm", config_.compute),
      text_dropout_(host.f64("model.text_dropout")),
      eval_inputs_(host.text("model.eval_inputs")),
      data_(open_data(host, config_)),
      lengths_(lengths_of(*data_.train)),
      desc_("cad_mllm " + host.text("model.size")) {
  build_units();
  build_programs();
}

void CadMllm::prepare() {
  products_.settle({host.i64("data.micro_batch") * config_.max_tokens, config_.llm.width, config_.llm.mlp_width});
}

ddh_batch* CadMllm::give_away(CadBatch batch) {
  auto owned = std::make_unique<CadBatch>(std::move(batch));
  host.alloc->account(host.h, DDH_TAG_DATA, owned->bytes());
  return reinterpret_cast<ddh_batch*>(owned.release());
}

ddh_batch* CadMllm::batch_create(const ddh_batch_args& args, ddh_batch_info& info) {
  const int32_t stage = stage_of(args.program);
  const bool training = args.program < kStages;
  BatchMaker maker(config_, stage);
  for (uint32_t i = 0; i < args.n_samples; ++i) {
    const int64_t sample = args.samples[i];
    images::VisitRng rng(config_.seed, ddh::epoch_of(args, i), sample);
    Inputs has = training ? drawn_inputs(stage, rng.uniform()) : eval_inputs(stage);
    const Item item = (training ? data_.train : data_.eval)->item(static_cast<uint64_t>(sample), has);
    // A caption that is the only input stays.
    if (training && !(item.pixels.empty() && item.points.empty()) && rng.uniform() < text_dropout_) has.text = false;
    maker.add(sequence_of(config_, has.text ? item.prompt : kBarePrompt, item.target), item, has);
  }
  CadBatch batch = maker.made();
  info.items = static_cast<uint64_t>(batch.n_tokens);
  info.loss_count = static_cast<double>(batch.n_targets);
  return give_away(std::move(batch));
}

ddh_batch* CadMllm::batch_of(int32_t stage, int64_t B, const std::vector<int64_t>& ids,
                             const std::vector<int64_t>& labels, const std::vector<float>& pixels,
                             const std::vector<float>& points) {
  const int64_t T = static_cast<int64_t>(ids.size()) / B;
  BatchMaker maker(config_, stage);
  for (int64_t b = 0; b < B; ++b) {
    const auto part = [b, B](const auto& all) {
      const auto n = static_cast<int64_t>(all.size()) / B;
      return std::decay_t<decltype(all)>(all.begin() + b * n, all.begin() + (b + 1) * n);
    };
    maker.add({part(ids), 0}, {"", "", part(pixels), part(points)}, {true, true, true});
  }
  CadBatch batch = maker.made();
  const int64_t tokens = maker.prefix() + T;
  batch.rows = at::empty({B * tokens}, at::kLong);
  batch.targets = at::empty({B * tokens}, at::kLong);
  batch.sample_of_row.clear();
  batch.n_targets = 0;
  for (int64_t row = 0; row < B * tokens; ++row) {
    const int64_t b = row / tokens, t = row % tokens - maker.prefix() + 1;  // the token after it
    const int64_t label = t >= 0 && t < T ? labels[static_cast<size_t>(b * T + t)] : kNoTarget;
    batch.rows.mutable_data_ptr<int64_t>()[row] = row;
    batch.targets.mutable_data_ptr<int64_t>()[row] = label;
    batch.sample_of_row.push_back(b);
    batch.n_targets += label != kNoTarget ? 1 : 0;
  }
  batch.keeps_logits = true;
  return give_away(std::move(batch));
}

void CadMllm::view(const ddh_batch* batch, uint32_t sample, const ddh::SampleParts& parts) const {
  const auto& of_batch = *reinterpret_cast<const CadBatch*>(batch);
  const int64_t* const ids = of_batch.ids.const_data_ptr<int64_t>() + sample * of_batch.T;
  parts.text("text", text_of({ids, ids + of_batch.T}));
  std::vector<int64_t> targets;
  for (size_t r = 0; r < of_batch.sample_of_row.size(); ++r)
    if (of_batch.sample_of_row[r] == sample) targets.push_back(of_batch.targets.const_data_ptr<int64_t>()[r]);
  parts.text("targets", text_of(targets));
  const auto size = [](int64_t n) { return static_cast<uint64_t>(n); };
  if (of_batch.pixels.defined()) {
    const uint64_t side = size(config_.image.side);
    const float* const pixels = of_batch.pixels.const_data_ptr<float>() + sample * config_.image.numel();
    parts.pixels("image", {size(config_.image.views), side, side, 3},
                 images::shown_pixels(pixels, config_.image.views, transform_of(config_.image)));
  }
  if (of_batch.points.defined())
    parts.values("points", {size(config_.point.points), 6, 1, 1},
                 of_batch.points.const_data_ptr<float>() + sample * config_.point.numel());
}

// A condition is a sample of the evaluation data: its image and points, and its caption unless a prompt is given. Instead of
// one, files may be given.
void CadMllm::sampler_begin(const ddh_sample_args& args) {
  const int32_t stage = stage_of(args.program);
  Item item;
  Inputs has = kStageInputs[stage];
  const std::string image = host.text("model.sample_image"), points = host.text("model.sample_points");
  if (!image.empty() || !points.empty()) {
    if (args.condition >= 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "both a sample of the evaluation (--condition) and files (model.sample_image, ",
                "model.sample_points) are given to generate for; give one of them");
    if (eval_inputs_ != "stage")
      ddh::fail(DDH_INVALID_ARGUMENT, "model.eval_inputs=", eval_inputs_, " is given beside model.sample_image or ",
                "model.sample_points, which name the inputs themselves; leave it out");
    has = known_to(stage, "model.sample_image and model.sample_points name", {true, !points.empty(), !image.empty()});
    item = read_item(config_, image, points);
  } else if (args.condition >= 0) {
    has = eval_inputs(stage);
    item = data_.eval->item(static_cast<uint64_t>(args.condition), has);
  }
  const std::string given = args.prompt;
  const bool has_caption = args.condition >= 0 && has.text;
  const std::string prompt = !given.empty() ? given + "\n" : has_caption ? item.prompt : kBarePrompt;
  sampler_.begin(config_, stage, prompt, std::move(item), has, args);
}

ddh_batch* CadMllm::sampler_next() {
  std::optional<CadBatch> batch = sampler_.next(config_);
  return batch ? give_away(std::move(*batch)) : nullptr;
}

const char* CadMllm::sampler_text() {
  text_ = text_of(sampler_.ids());
  return text_.c_str();
}

void CadMllm::batch_destroy(ddh_batch* batch) noexcept {
  host.alloc->account(host.h, DDH_TAG_DATA, -batch_of_handle(batch).bytes());
  std::unique_ptr<CadBatch>(&batch_of_handle(batch)).reset();
}

// The mix of the curriculum: a stage's samples keep some of what earlier stages know.
Inputs CadMllm::drawn_inputs(int32_t stage, double draw) {
  Inputs has{true, false, false};
  if (stage == 1) has.points = draw >= 0.3;
  if (stage == 2) {
    has.points = (draw >= 0.2 && draw < 0.5) || draw >= 0.7;
    has.image = draw >= 0.5;
  }
  return has;
}

Inputs CadMllm::eval_inputs(int32_t stage) const {
  if (eval_inputs_ == "stage") return kStageInputs[stage];
  return known_to(stage, "model.eval_inputs=" + eval_inputs_ + " names",
                  {eval_inputs_ == "text", eval_inputs_.ends_with("points"), eval_inputs_.starts_with("image")});
}

ddh::Tensors CadMllm::run_unit(const UnitRun& run, const std::vector<at::Tensor>& params, const ddh::Tensors& inputs) {
  CadBatch& batch = batch_of_handle(run.batch);
  const bool is_last = run.unit == llm_units_.back();
  if (batch.B == 0) {
    for (uint32_t m = 0; is_last && m < kMetrics.size(); ++m) report(run, m, 0, 0);
    return at::zeros({}, device().options(at::kFloat));
  }
  const std::vector<at::Tensor> t = on_device(run, {batch.ids, batch.pixels, batch.points, batch.rows, batch.targets});
  const CadTensors tensors{t[0], t[1], t[2], t[3], t[4]};
  UnitCall unit_call(*this, run, tensors, params);
  const Tensors out = units_[static_cast<size_t>(run.unit)].unit.run(unit_call, inputs);
  return is_last ? ddh::Tensors(loss(run, batch, tensors.targets, out.back())) : ddh::Tensors(out.begin(), out.end());
}

at::Tensor CadMllm::loss(const UnitRun& run, CadBatch& batch, const at::Tensor& targets, const at::Tensor& logits) {
  const at::Tensor sum = at::cross_entropy_loss(logits, targets, {}, /*reduction: sum*/ 2, kNoTarget);
  report(run, 0, sum, static_cast<double>(batch.n_targets));
  const at::Tensor likeliest = logits.detach().argmax(1);
  if (device().by_operators()) {
    count_hits_by_operators(run, batch, targets, likeliest);
  } else {
    count_hits(run, batch, likeliest);
  }
  if (batch.is_of_sampler) sampler_.see(logits);
  if (batch.keeps_logits && logits.is_cpu()) {
    const at::Tensor values = logits.detach().contiguous();
    batch.logits.assign(values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel());
  }
  return sum;
}

// Metrics 1 and 2: tokens that are the likeliest, and samples whose tokens all are.
void CadMllm::count_hits_by_operators(const UnitRun& run, const CadBatch& batch, const at::Tensor& targets,
                                      const at::Tensor& likeliest) {
  const at::Tensor counts = targets.ne(kNoTarget), equal = likeliest.eq(targets);
  const at::Tensor hits = equal.logical_and(counts).sum(at::kDouble);
  // The rows of a sample follow each other.
  std::vector<int64_t> rows_of_sample(static_cast<size_t>(batch.B), 0);
  for (const int64_t sample : batch.sample_of_row) ++rows_of_sample[static_cast<size_t>(sample)];
  at::Tensor exact = at::zeros({}, device().options(at::kDouble));
  const at::Tensor misses = equal.logical_not().logical_and(counts);
  int64_t first = 0;
  for (const int64_t rows : rows_of_sample) {
    exact.add_(misses.narrow(0, first, rows).any().logical_not());
    first += rows;
  }
  report(run, 1, hits, static_cast<double>(batch.n_targets));
  report(run, 2, exact, static_cast<double>(batch.B));
}

void CadMllm::count_hits(const UnitRun& run, const CadBatch& batch, const at::Tensor& likeliest) {
  const auto *best = likeliest.const_data_ptr<int64_t>(), *targets = batch.targets.const_data_ptr<int64_t>();
  std::vector<bool> is_exact(static_cast<size_t>(batch.B), true);
  int64_t hits = 0;
  for (size_t r = 0; r < batch.sample_of_row.size(); ++r) {
    if (targets[r] == kNoTarget) continue;
    if (best[r] == targets[r]) {
      ++hits;
    } else {
      is_exact[static_cast<size_t>(batch.sample_of_row[r])] = false;
    }
  }
  report(run, 1, static_cast<double>(hits), static_cast<double>(batch.n_targets));
  report(run, 2, static_cast<double>(std::count(is_exact.begin(), is_exact.end(), true)), static_cast<double>(batch.B));
}

// Texts differ in length: the longest of the first samples stands for all, and the mean of their targets.
CadMllm::TextLengths CadMllm::lengths_of(const ItemSet& items) const {
  constexpr uint64_t kLookedAt = 1000;
  TextLengths out;
  const uint64_t n = std::min(items.size(), kLookedAt);
  for (uint64_t i = 0; i < n; ++i) {
    const auto [prompt, target] = items.texts(i);
    const Sequence s = sequence_of(config_, prompt, target);
    const auto length = static_cast<double>(s.ids.size());
    out.longest = std::max(out.longest, length);
    out.mean_targets += (length - static_cast<double>(s.first_target)) / static_cast<double>(n);
  }
  return out;
}

Cost CadMllm::cost_of(const ddh_estimate_args& args) {
  const ddh_program_desc& program = *desc_.get().programs[args.program];
  const double samples = args.n_samples;
  const double prefix = static_cast<double>(BatchMaker(config_, stage_of(args.program)).prefix());
  const Load load{samples,
                  prefix + lengths_.longest,
                  samples * lengths_.mean_targets,
                  config_.compute == at::kFloat ? 4.0 : 2.0,
                  prefix > 0 || program.units[args.position] != llm_units_.front(),
                  device().by_operators(),
                  ops::dtype_of(config_.compute)};
  return units_[static_cast<size_t>(program.units[args.position])].unit.cost(load);
}

// Whether a position has a backward.
bool CadMllm::goes_back(const ddh_estimate_args& args) {
  const ddh_program_desc& program = *desc_.get().programs[args.program];
  return program.kind == DDH_PROGRAM_TRAIN && program.position_flags != nullptr &&
         (program.position_flags[args.position] & DDH_POSITION_FORWARD_ONLY) == 0;
}

bool CadMllm::estimate(const ddh_estimate_args& args, ddh_estimate& out) {
  const Cost cost = cost_of(args);
  out = {sizeof out, 0, cost.forward_flops, 0, 0, 0, 0, 0};
  if (!goes_back(args)) return true;
  out.backward_flops = cost.backward_flops;
  out.activation_bytes = static_cast<uint64_t>(cost.kept_bytes);
  out.lasting_bytes = static_cast<uint64_t>(cost.lasting_bytes);
  out.forward_peak_bytes = static_cast<uint64_t>(cost.forward_at_peak);
  out.backward_peak_bytes = static_cast<uint64_t>(cost.backward_at_peak);
  return true;
}

void CadMllm::build_units() {
  const auto add = [&](Unit unit) {
    const auto index = static_cast<int32_t>(units_.size());
    Placed& placed = units_.emplace_back(Placed{std::move(unit), {}});
    std::vector<int32_t> params;
    for (const ParamSpec& spec : placed.unit.params) {
      placed.places.emplace(spec.name, params.size());
      params.push_back(desc_.add_param(
          index, placed.unit.prefix + spec.name, spec.shape, spec.init, spec.trains ? 0U : DDH_PARAM_FROZEN, {},
          {.lr_scale = spec.lr_scale,
           .grad_block = spec.trains && spec.shape.size() == 2 ? ddh::grad_block_of(spec.shape) : 0}));
    }
    return desc_.add_unit(placed.unit.name, params);
  };
  for (Unit& unit : image_encoder(config_)) image_units_.push_back(add(std::move(unit)));
  for (Unit& unit : point_encoder(config_)) point_units_.push_back(add(std::move(unit)));
  image_projector_ = add(projector(config_, "image", config_.image.width, config_.image.tokens(), /*is_first=*/true));
  point_projector_ = add(projector(config_, "point", config_.point.width, 1, /*is_first=*/false));
  embedding_ = add(token_embedding(config_));
  for (Unit& unit : decoder(config_)) llm_units_.push_back(add(std::move(unit)));
  llm_units_.push_back(add(head(config_)));
}

std::vector<int32_t> CadMllm::units_of(int32_t stage) const {
  const Inputs known = kStageInputs[stage];
  std::vector<int32_t> units;
  if (known.image) units = image_units_;
  if (known.points) units.insert(units.end(), point_units_.begin(), point_units_.end());
  if (known.image) units.push_back(image_projector_);
  if (known.points) units.push_back(point_projector_);
  units.push_back(embedding_);
  units.insert(units.end(), llm_units_.begin(), llm_units_.end());
  return units;
}

void CadMllm::add_program(int32_t kind, int32_t stage) {
  const bool trains = kind == DDH_PROGRAM_TRAIN;
  const std::vector<int32_t> units = units_of(stage);
  std::vector<uint32_t> flags;
  for (const int32_t unit : units) {
    const bool is_encoder = unit < image_projector_;
    const bool is_frozen = unit == embedding_ || unit == llm_units_.back();
    const bool leads = is_encoder || (unit == embedding_ && stage == 0);  // nothing before it learns
    flags.push_back(leads ? DDH_POSITION_FORWARD_ONLY : is_frozen ? DDH_POSITION_INPUT_GRAD_ONLY : 0U);
  }
  std::vector<uint8_t> trainable;
  for (size_t u = 0; u < units_.size(); ++u) {
    const bool runs = std::find(units.begin(), units.end(), static_cast<int32_t>(u)) != units.end();
    for (const ParamSpec& spec : units_[u].unit.params) trainable.push_back(runs && spec.trains ? 1 : 0);
  }
  desc_.add_program({.kind = kind,
                     .name = trains ? kStageNames[stage] : kEvalNames[stage],
                     .units = units,
                     .metrics = kMetrics,
                     .n_samples = (trains ? data_.train : data_.eval)->size(),
                     .sample_unit = "tokens",
                     .trainable = trains ? trainable : std::vector<uint8_t>{},
                     .position_flags = trains ? flags : std::vector<uint32_t>{},
                     .eval_program = trains && data_.eval != nullptr ? kEvalNames[stage] : ""});
}

void CadMllm::build_programs() {
  for (int32_t stage = 0; stage < kStages; ++stage) add_program(DDH_PROGRAM_TRAIN, stage);
  for (int32_t stage = 0; stage < kStages && data_.eval != nullptr; ++stage) add_program(DDH_PROGRAM_EVAL, stage);
}

}  // namespace cad
