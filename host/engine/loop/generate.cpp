// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/generate.hpp"

namespace ddhost {
namespace {

// `prompt` outlives the result. `length`: 0 only checks.
ddh_sample_args sample_args(const RunConfig& config, const std::string& prompt, uint32_t length, int32_t program) {
  const bool has_condition = config.is_given("run.sample_condition");
  return {sizeof(ddh_sample_args),
          length,
          prompt.c_str(),
          static_cast<uint64_t>(config.get<int64_t>("run.seed")),
          config.get<double>("run.sample_temperature"),
          static_cast<int32_t>(config.get<int64_t>("run.sample_top_k")),
          program,
          has_condition ? config.get<int64_t>("run.sample_condition") : -1};
}

std::string text_of(const PluginCaller& call, const ddh_sampler_api* sampler, ddh_inst* model) {
  const PluginCaller::Entered entered = call.enter(PluginCall::kSampleText);
  const char* const text = sampler->text(model);
  return text == nullptr ? "" : text;
}

uint32_t length_of(const RunConfig& config) { return static_cast<uint32_t>(config.get<int64_t>("run.sample_tokens")); }

}  // namespace

bool can_generate(const RunConfig& config, const ddh_sampler_api* sampler, int32_t program) {
  return sampler != nullptr && program >= 0 && length_of(config) > 0;
}

void check_generation(const RunConfig& config, const ddh_model_desc& desc, const Instance& model,
                      const ddh_sampler_api* sampler, int32_t program) {
  if (!can_generate(config, sampler, program)) return;
  const std::string& prompt = config.text("run.sample_prompt");
  const ddh_sample_args args = sample_args(config, prompt, 0, program);
  const uint64_t n_samples = desc.programs[program]->n_samples;
  if (args.condition >= 0 && static_cast<uint64_t>(args.condition) >= n_samples)
    ddh::fail(DDH_OUT_OF_RANGE, "run.sample_condition=", args.condition, " is not a sample of program '",
              desc.programs[program]->name, "', which has ", n_samples, " samples; give a smaller index, or null");
  model.call(PluginCall::kSampleBegin, sampler->begin, &args);
}

void require_sampler(const RunConfig& config, const ddh_model_desc& desc, const ddh_sampler_api* sampler,
                     int32_t program) {
  if (sampler == nullptr)
    ddh::fail(DDH_FAILED_PRECONDITION, "model '", desc.name, "' has no sampler, so it can generate nothing; ",
              "choose another model, or an option of it that adds one");
  if (program < 0)
    ddh::fail(DDH_FAILED_PRECONDITION, "model '", desc.name, "' has no program for its sampler: the ",
              "training program that it goes by (the first; of phases, that of the last one) names no program that ",
              "evaluates it; give validation data (data.val_path, data.val_fraction)");
  if (length_of(config) == 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "run.sample_tokens=0 (--length) leaves nothing to generate; give a length");
}

std::string generate(TrainSetup& setup, const ddh_sampler_api* sampler, int64_t step, uint64_t number,
                     const ShowText& show) {
  const RunConfig& config = setup.services.config;
  const std::string& prompt = config.text("run.sample_prompt");
  ddh_sample_args args = sample_args(config, prompt, length_of(config), setup.eval_program);
  args.seed += number;
  const PluginCaller& call = setup.model_callers.main;
  call(PluginCall::kSampleBegin, sampler->begin, setup.model_inst, &args);
  std::string shown;
  const auto show_more = [&] {
    const std::string text = text_of(call, sampler, setup.model_inst);
    if (show && text.starts_with(shown)) show(std::string_view(text).substr(shown.size()));
    if (text.starts_with(shown)) shown = text;
  };
  while (!stop_wanted(setup)) {
    ddh_batch* batch = nullptr;
    call(PluginCall::kSampleNext, sampler->next, setup.model_inst, &batch);  // it has waited for the device
    setup.services.comm->require_healthy();
    show_more();
    if (batch == nullptr) break;
    const Batch owned(setup.model_inst, &setup.model_table, call, batch, {});
    setup.runner.run(setup.programs.of(setup.eval_program), MicroBatch{step, 0, 0}, owned, 1.0);
  }
  setup.runner.discard(0);
  return text_of(call, sampler, setup.model_inst);
}

}  // namespace ddhost
