// SPDX-License-Identifier: Apache-2.0
#include "run/evaluate.hpp"

#include <algorithm>
#include <array>

namespace ddhost {

namespace {

const ddh_program_desc& eval_program(const TrainSetup& setup) {
  if (setup.eval_program >= 0) return *setup.model.programs[setup.eval_program];
  ddh::fail(DDH_FAILED_PRECONDITION, "model '", setup.model.name, "' has no eval program; set train.eval_every=0");
}

// All ranks make the same number of passes, so they must agree.
bool stop_wanted(const TrainSetup& setup) {
  return setup.services.comm->any(setup.services.seat.progress.stop_requested(), "stop");
}

bool takes_each_once(const TrainSetup& setup) { return epoch_end(setup.services.config) == EpochEnd::shorten; }

// With data.drop_last=false no sample counts twice: there are no more micro-batches than the samples fill.
SampleCut eval_cut(const TrainSetup& setup) {
  const Config& config = setup.services.config;
  SampleCut cut{static_cast<uint64_t>(config.get<int64_t>("data.micro_batch")),
                static_cast<uint64_t>(setup.services.seat.world_size),
                static_cast<uint64_t>(config.get<int64_t>("train.eval_batches"))};
  const uint64_t together = cut.micro_batch * cut.world_size;
  const uint64_t needed = (eval_program(setup).n_samples + together - 1) / together;
  if (takes_each_once(setup)) cut.grad_accum_steps = std::clamp<uint64_t>(needed, 1, cut.grad_accum_steps);
  return cut;
}

Sampler eval_sampler(const TrainSetup& setup) {
  const uint64_t n_samples = eval_program(setup).n_samples;
  const SampleCut cut = eval_cut(setup);
  if (takes_each_once(setup)) {
    Sampler sampler(n_samples, 0, cut, "", EpochEnd::shorten);
    if (!sampler.has_empty(1) || setup.takes_empty_batches) return sampler;
    ddh::fail(DDH_FAILED_PRECONDITION, "the ", n_samples,
              " samples of the evaluation leave a micro-batch empty, which ", "model '", setup.model.name,
              "' does not take; change train.eval_batches or data.micro_batch, or leave out ", "data.drop_last=false");
  }
  if (n_samples >= cut.micro_batch * cut.world_size) return {n_samples, 0, cut, ""};
  ddh::fail(DDH_FAILED_PRECONDITION, "the evaluation data has ", n_samples, " samples, fewer than one micro-batch of ",
            cut.micro_batch, " on each of ", cut.world_size,
            " ranks; raise data.val_fraction, give data.val_path, or set train.eval_every=0");
}

}  // namespace

Evaluation::Evaluation(const TrainSetup& setup)
    : setup_(setup), batches_(eval_cut(setup).grad_accum_steps), sampler_(eval_sampler(setup)) {}

double Evaluation::mean_loss(int64_t step) const {
  const auto rank = static_cast<uint64_t>(setup_.services.seat.rank);
  const uint32_t n_metrics = setup_.model.programs[setup_.eval_program]->n_metrics;
  MetricSums mine;
  for (uint64_t b = 0; b < batches_ && !stop_wanted(setup_); ++b) {
    const Batch batch = make_batch(
        setup_.model_inst, setup_.model_table, setup_.model_callers.main, setup_.model_callers.main,
        {setup_.eval_program, step, b, setup_.services.comm->global_micro_batch(b)}, sampler_.samples(1, b, rank));
    const MicroBatch micro{step, 0, setup_.services.comm->global_micro_batch(b)};
    setup_.engine.run(setup_.programs.of(setup_.eval_program), micro, batch, 1.0);
    setup_.engine.add_metrics(setup_.eval_program, 0, n_metrics, mine.sum.data(), mine.count.data());
    setup_.engine.discard(0);
  }
  std::vector<MetricSums> all(static_cast<size_t>(setup_.services.seat.world_size));
  setup_.services.comm->all_gather_bytes(&mine, all.data(), sizeof mine, "evaluate");
  double sum = 0, count = 0;
  for (const MetricSums& one : all) {
    sum += one.sum[0];
    count += one.count[0];
  }
  return sum / count;
}

void check_sample_prompt(const Config& config, const Instance& model, const ddh_sampler_api* sampler, int32_t program) {
  if (sampler == nullptr || program < 0 || config.get<int64_t>("run.sample_tokens") == 0) return;
  const std::string prompt = config.text("run.sample_prompt");
  const ddh_sample_args args{sizeof(ddh_sample_args), 0, prompt.c_str(), 0, 1.0, 0, program, -1};
  model.call(PluginCall::kSampleBegin, sampler->begin, &args);
}

std::string sample_text(TrainSetup& setup, const ddh_sampler_api* sampler, int64_t step) {
  const Config& config = setup.services.config;
  const auto length = static_cast<uint32_t>(config.get<int64_t>("run.sample_tokens"));
  if (sampler == nullptr || setup.eval_program < 0 || length == 0) return "";
  const std::string prompt = config.text("run.sample_prompt");
  const ddh_sample_args args{
      sizeof(ddh_sample_args), length, prompt.c_str(), static_cast<uint64_t>(config.get<int64_t>("run.seed")), 1.0, 0,
      setup.eval_program,      -1};
  const PluginCaller& call = setup.model_callers.main;
  call(PluginCall::kSampleBegin, sampler->begin, setup.model_inst, &args);
  while (!stop_wanted(setup)) {
    ddh_batch* batch = nullptr;
    call(PluginCall::kSampleNext, sampler->next, setup.model_inst, &batch);
    if (batch == nullptr) break;
    const Batch owned(setup.model_inst, &setup.model_table, call, batch, {});
    setup.engine.run(setup.programs.of(setup.eval_program), MicroBatch{step, 0, 0}, owned, 1.0);
  }
  setup.engine.discard(0);
  const PluginCaller::Entered entered = call.enter(PluginCall::kSampleText);
  const char* const text = sampler->text(setup.model_inst);
  return text == nullptr ? "" : text;
}

}  // namespace ddhost
