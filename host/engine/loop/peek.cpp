// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/peek.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

#include "base/text.hpp"
#include "engine/loop/rank_setup.hpp"
#include "engine/record/rank_log.hpp"
#include "engine/samples/loader.hpp"
#include "engine/settings/course.hpp"

namespace ddhost {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // of all samples together

// Takes the parts of one sample. A failure of the host's own checks is kept, because a model may swallow it.
class PartTaker {
 public:
  PartTaker(PeekedSample& sample, uint64_t& bytes_left) : sample_(sample), bytes_left_(bytes_left) {}

  static ddh_rc take(void* context, const ddh_sample_part* part, ddh_err* err) {
    auto& self = *static_cast<PartTaker*>(context);
    return ddh::guard(err, [&] {
      try {
        self.add(ddh::copy_of(part));
      } catch (const ddh::Error& error) {
        if (self.failure_.empty()) self.failure_ = error.what(), self.code_ = error.code();
        throw;
      }
    });
  }
  [[nodiscard]] const std::string& failure() const { return failure_; }  // "": none
  [[nodiscard]] ddh_rc code() const { return code_; }

 private:
  void add(const ddh_sample_part& given) {
    PeekedPart part;
    part.kind = static_cast<PartKind>(given.kind);
    if (given.name == nullptr) ddh::fail(DDH_INVALID_ARGUMENT, "a part of a sample has no name");
    part.name = plain_text(given.name, kShownValue);
    std::copy_n(given.shape, part.shape.size(), part.shape.begin());
    const uint64_t bytes = bytes_of(part);
    if (bytes > 0 && given.data == nullptr)
      ddh::fail(DDH_INVALID_ARGUMENT, "part '", part.name, "' of a sample has no data");
    const auto* const data = static_cast<const uint8_t*>(given.data);
    if (part.kind == PartKind::kText) part.text.assign(data, data + bytes);
    if (part.kind == PartKind::kPixels) part.pixels.assign(data, data + bytes);
    part.values.resize(part.kind == PartKind::kValues ? bytes / sizeof(float) : 0);
    if (!part.values.empty()) std::memcpy(part.values.data(), data, bytes);
    if (!is_utf8(part.text)) ddh::fail(DDH_INVALID_ARGUMENT, "text '", part.name, "' of a sample is not UTF-8");
    sample_.parts.push_back(std::move(part));
  }

  // Checks kind and shape.
  uint64_t bytes_of(const PeekedPart& part) {
    const auto refuse = [&](const char* what) {
      ddh::fail(DDH_INVALID_ARGUMENT, "part '", part.name, "' of a sample has ", what, ": kind ",
                static_cast<int32_t>(part.kind), ", shape (", part.shape[0], ", ", part.shape[1], ", ", part.shape[2],
                ", ", part.shape[3], ")");
    };
    if (part.kind < PartKind::kText || part.kind > PartKind::kValues) refuse("an unknown kind");
    if (part.kind == PartKind::kText && (part.shape[1] != 1 || part.shape[2] != 1 || part.shape[3] != 1))
      refuse("not the shape of a text");
    if (part.kind == PartKind::kPixels && part.shape[3] != 1 && part.shape[3] != 3) refuse("neither 1 nor 3 channels");
    const bool is_empty = std::find(part.shape.begin(), part.shape.end(), uint64_t{0}) != part.shape.end();
    if (part.kind == PartKind::kPixels && is_empty) refuse("no pixels");
    uint64_t bytes = is_empty ? 0 : part.kind == PartKind::kValues ? sizeof(float) : 1;
    for (const uint64_t n : part.shape) {
      if (!is_empty && n > bytes_left_ / bytes)
        ddh::fail(DDH_RESOURCE_EXHAUSTED, "part '", part.name, "' of a sample does not fit into the ",
                  bytes_text(kMostBytes), " that all samples together may take; give fewer --samples");
      bytes *= n;
    }
    bytes_left_ -= bytes;
    return bytes;
  }

  PeekedSample& sample_;
  uint64_t& bytes_left_;
  std::string failure_;
  ddh_rc code_ = DDH_OK;
};

class Peek : RankSetup {
 public:
  Peek(const RunPlan& plan, std::unique_ptr<RunConfig> config, std::shared_ptr<spdlog::logger> log,
       const RankSeat& seat, const PeekWish& wish)
      : RankSetup(plan, std::move(config), std::move(log), seat), wish_(wish) {}
  Peek(const Peek&) = delete;
  Peek& operator=(const Peek&) = delete;
  ~Peek() { end_setup(); }

  Peeked run() {
    open_device();
    const ddh_comm_backend_api& world = join_alone();
    describe_model();
    const auto* const view = model_.find<ddh_batch_view_api>(DDH_BATCH_VIEW_IFACE, DDH_BATCH_VIEW_API_MIN_SIZE);
    if (view == nullptr)
      ddh::fail(DDH_UNIMPLEMENTED, "model '", plan_.model.id(), "' does not show its samples (it lacks '",
                DDH_BATCH_VIEW_IFACE, "'); a newer one may, or look at its files");
    choose_programs();
    Peeked out = chosen_samples();
    out.is_read = is_read();
    if (model_table_->prepare != nullptr) model_.call(PluginCall::kPrepare, model_table_->prepare);
    see(*view, out);
    comm_.call(PluginCall::kFinalize, world.finalize);
    end_setup();
    services_.seat.record.misuse().require_none();
    return out;
  }

 private:
  // A model may ask all ranks, also where it is the only one.
  const ddh_comm_backend_api& join_alone() {
    const bool two = plan_.has_host_comm();
    comm_ = two ? make(plan_.host_comm, host_comm_seat_, "comm_host") : make(plan_.comm, comm_seat_, "comm");
    const ddh_comm_backend_api* const table = join_over(comm_);
    const auto* shared = comm_.find<ddh_comm_shared_api>(DDH_COMM_SHARED_IFACE, DDH_COMM_SHARED_API_MIN_SIZE);
    services_.comm =
        std::make_unique<Comm>(comm_.get(), table, shared, services_.clock, comm_.caller(), services_.seat.nodes);
    make_windows();
    return *table;
  }

  [[nodiscard]] const ddh_program_desc& described() const { return *model_desc_->programs[program_]; }
  [[nodiscard]] bool is_evaluation() const { return described().kind == DDH_PROGRAM_EVAL; }

  [[nodiscard]] int32_t chosen_program() const {
    if (wish_.program.empty()) return train_programs_.front();
    std::vector<std::string> names;
    for (uint32_t p = 0; p < model_desc_->n_programs; ++p) {
      const ddh_program_desc& program = *model_desc_->programs[p];
      if (program.kind == DDH_PROGRAM_UPDATE) continue;  // it reads all samples in ascending order
      if (wish_.program == program.name) return static_cast<int32_t>(p);
      names.emplace_back(program.name);
    }
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    const std::string near = nearest(wish_.program, names);
    ddh::fail(DDH_NOT_FOUND, "model '", model_desc_->name, "' has no program '", plain_text(wish_.program, kShownValue),
              "' that trains or evaluates", near.empty() ? "" : " (did you mean '" + near + "'?)",
              "; give one of --program ", all);
  }

  [[nodiscard]] SampleOrder order() const {
    if (described().n_samples == 0)
      ddh::fail(DDH_FAILED_PRECONDITION, "program '", described().name, "' of model '", model_desc_->name,
                "' has no samples; give more data (data.path, for an evaluation data.val_path or data.val_fraction)");
    return is_evaluation() ? evaluation_order(described().n_samples)
                           : order_of(config(), *model_desc_, train_programs_, program_);
  }

  // Of a step of the training, where no phase says otherwise.
  [[nodiscard]] SampleCut cut() const {
    SampleCut out{micro_batch_of(config(), described()), wish_.world_size,
                  static_cast<uint64_t>(config().get<int64_t>("train.grad_accum_steps"))};
    for (const PhaseSpec& phase : phases_)
      if (phase.micro_batch && std::find(phase.turns.begin(), phase.turns.end(), program_) != phase.turns.end()) {
        out.micro_batch = *phase.micro_batch;
        break;
      }
    return out;
  }

  // Samples of an epoch that steps read: data.drop_last drops those after the last full step.
  [[nodiscard]] uint64_t read_in_epoch(const SampleOrder& order) const {
    const SampleCut step = cut();
    const uint64_t size = order.epoch_size(), last = size - size % step.per_step();
    return is_evaluation() || order.next_position(last, step) == last ? size : last;
  }

  // Whether the training comes to the epoch, as far as that is found out quickly.
  [[nodiscard]] bool is_read() const {
    constexpr int64_t kMostSteps = 5'000'000;
    if (wish_.epoch == 0 || is_evaluation()) return true;
    try {
      const TrainOrder steps = make_order(config(), *model_desc_, phases_, wish_.world_size);
      const uint64_t begin = wish_.epoch * steps.epoch_size(program_);
      TrainPosition at = steps.begin();
      for (int64_t i = 0; i < kMostSteps; ++i) {
        if (steps.is_at_end(at)) return false;
        static_cast<void>(steps.advance(at));
        if (at.samples[static_cast<size_t>(program_)] > begin) return true;
      }
    } catch (const std::exception&) {  // a training says what is wrong
    }
    return true;
  }

  // Which samples are to be shown; program_ is set.
  Peeked chosen_samples() {
    program_ = chosen_program();
    const SampleOrder samples = order();
    Peeked out{model_desc_->name, described().name, wish_.epoch, read_in_epoch(samples), {}, true};
    if (is_evaluation() && wish_.epoch > 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "program '", out.program, "' evaluates, and reads the same samples each time; ",
                "leave --epoch out");
    if (wish_.epoch >= (uint64_t{1} << 62) / samples.epoch_size())
      ddh::fail(DDH_OUT_OF_RANGE, "--epoch ", wish_.epoch, " is too large for epochs of ", samples.epoch_size(),
                " samples; give a smaller one");
    if (wish_.index >= out.epoch_size)
      ddh::fail(DDH_OUT_OF_RANGE, "--index ", wish_.index, " is beyond the epoch: program '", out.program, "' reads ",
                counted(out.epoch_size, "sample"), " in one",
                out.epoch_size < samples.epoch_size() ? " (data.drop_last drops the rest)" : "", "; ",
                out.epoch_size == 0 ? "use a smaller data.micro_batch or fewer ranks"
                                    : ddh::str("give an index from 0 to ", out.epoch_size - 1));
    const uint64_t n = std::min(wish_.samples, out.epoch_size - wish_.index);
    const SampleSpan span{wish_.epoch * samples.epoch_size() + wish_.index, n};
    for (const int64_t sample : samples.samples(span, {n, 1, 1}, 0, 0))
      out.samples.push_back({wish_.index + out.samples.size(), sample, {}});
    return out;
  }

  // In batches of the size of a micro-batch, so that they take the memory of a training's.
  void see(const ddh_batch_view_api& view, Peeked& out) {
    const uint64_t most = micro_batch_of(config(), described());
    for (uint64_t first = 0; first < out.samples.size(); first += most) {
      const uint64_t n = std::min<uint64_t>(most, out.samples.size() - first);
      std::vector<int64_t> indices, epochs;
      for (uint64_t i = 0; i < n; ++i) {
        indices.push_back(out.samples[first + i].sample);
        if (!is_evaluation()) epochs.push_back(static_cast<int64_t>(out.epoch));
      }
      const PluginCaller& caller = model_.caller();
      const Batch batch =
          make_batch(model_.get(), *model_table_, caller, caller, {program_, /*step=*/1, 0, 0}, indices, epochs);
      for (uint64_t i = 0; i < n; ++i) {
        PartTaker taker(out.samples[first + i], bytes_left_);
        try {
          caller(PluginCall::kView, view.view, model_.get(), batch.get(), static_cast<uint32_t>(i), PartTaker::take,
                 &taker);
        } catch (const ddh::Error&) {
          if (taker.failure().empty()) throw;
        }
        if (taker.code() == DDH_RESOURCE_EXHAUSTED) ddh::fail(taker.code(), taker.failure());
        if (!taker.failure().empty()) caller.blame(PluginCall::kView, {}, taker.failure());
      }
    }
  }

  const PeekWish& wish_;
  int32_t program_ = 0;
  uint64_t bytes_left_ = kMostBytes;
};

}  // namespace

Peeked peek(const RunPlan& plan, std::unique_ptr<RunConfig> config, const RankSeat& seat, const PeekWish& wish) {
  RankLog log = make_rank_log(plan, *config, seat);
  return Peek(plan, std::move(config), std::move(log.logger), seat, wish).run();
}

}  // namespace ddhost
