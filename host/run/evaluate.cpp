// SPDX-License-Identifier: Apache-2.0
#include "run/evaluate.hpp"

#include <array>
#include <limits>

namespace ddhost {

double evaluate(TrainSetup& setup, int64_t step) {
  if (setup.eval_program < 0) return std::numeric_limits<double>::quiet_NaN();
  const RankServices& services = setup.services;
  const auto batches = static_cast<uint64_t>(services.config.get<int64_t>("train.eval_batches"));
  const SampleCut cut{static_cast<uint64_t>(services.config.get<int64_t>("data.micro_batch")),
                      static_cast<uint64_t>(services.seat.world_size), batches};
  const Sampler sampler(setup.model.programs[setup.eval_program]->n_samples, 0, cut, "");
  const OpList ops(setup.model, setup.eval_program, 1);
  const uint32_t n_metrics = setup.model.programs[setup.eval_program]->n_metrics;

  MetricSums mine;
  for (uint64_t b = 0; b < batches; ++b) {
    const Batch batch = make_batch(setup.model_inst, setup.model_table, setup.eval_program, step, b,
                                   sampler.samples(1, b, static_cast<uint64_t>(services.seat.rank)));
    setup.engine.run(ops, setup.eval_program, step, 0, batch, 1.0);
    setup.engine.add_metrics(setup.eval_program, 0, n_metrics, mine.sum.data(), mine.count.data());
    setup.engine.discard(0);
  }
  std::vector<MetricSums> all(static_cast<size_t>(services.seat.world_size));
  services.comm->all_gather_bytes(&mine, all.data(), sizeof mine, "evaluate");
  double sum = 0, count = 0;
  for (const MetricSums& rank : all) {
    sum += rank.sum[0];
    count += rank.count[0];
  }
  return sum / count;
}

std::string sample_text(TrainSetup& setup, const ddh_sampler* sampler, int64_t step) {
  const Config& config = setup.services.config;
  const auto length = static_cast<uint32_t>(config.get<int64_t>("run.sample_tokens"));
  if (sampler == nullptr || setup.eval_program < 0 || length == 0) return "";
  ddh::call(sampler->begin, setup.model_inst, config.text("run.sample_prompt").c_str(), length,
            static_cast<uint64_t>(config.get<int64_t>("run.seed")));
  const OpList ops(setup.model, setup.eval_program, 1);
  for (;;) {
    ddh_batch* batch = nullptr;
    ddh::call(sampler->next, setup.model_inst, &batch);
    if (batch == nullptr) break;
    const Batch owned(setup.model_inst, &setup.model_table, batch, {});
    setup.engine.run(ops, setup.eval_program, step, 0, owned, 1.0);
  }
  setup.engine.discard(0);
  return sampler->text(setup.model_inst);
}

}  // namespace ddhost
