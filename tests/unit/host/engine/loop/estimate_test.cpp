// SPDX-License-Identifier: Apache-2.0
//
// What the summary makes of a model's estimates: which positions count, and what a model without them gives.
#include "engine/loop/estimate.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "ddh/sdk/model.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

// Three units: the first is forward only. Unit u costs 10^u operations forward and twice that backward, for each sample.
struct Costs {
  ddh::ModelDesc desc{"costs"};
  ddh_model_api table{};
  Costs() {
    for (int32_t u = 0; u < 3; ++u) desc.add_unit(ddh::str("unit ", u), {desc.add_param(u, ddh::str("w", u), {1}, {})});
    desc.add_program({DDH_PROGRAM_TRAIN,
                      "train",
                      {0, 1, 2},
                      {"loss"},
                      10,
                      "samples",
                      {0, 1, 1},
                      0,
                      {DDH_POSITION_FORWARD_ONLY, 0, 0}});
    table.estimate = [](ddh_inst*, const ddh_estimate_args* args, ddh_estimate* out, ddh_err*) noexcept {
      const double cost[] = {1, 10, 100};
      out->forward_flops = cost[args->position] * args->n_samples;
      out->backward_flops = 2 * out->forward_flops;
      out->activation_bytes = static_cast<uint64_t>(out->forward_flops);
      return ddh_rc{DDH_OK};
    };
  }
  std::optional<WorkEstimate> ask(uint32_t recompute_every = 0) {
    return estimate_program(PluginCaller("the model"), nullptr, table, ProgramOps(desc.get(), 0, 1, recompute_every),
                            4);
  }
};

}  // namespace

TEST_CASE("an estimate counts forwards, and backwards and activations where there is a backward", "[estimate]") {
  Costs model;
  const std::optional<WorkEstimate> work = model.ask();
  REQUIRE(work);
  CHECK(work->n_samples == 4);
  CHECK(work->forward_flops == 4 * 111);
  CHECK(work->backward_flops == 8 * 110);
  CHECK(work->activation_bytes == 4 * 110);
}

// Each position keeps 40 or 400 bytes; a tenth of that lasts, half is temporary in the forward, twice that in the backward.
TEST_CASE("the peak of a micro-batch is followed through its calls, with and without recomputation", "[estimate]") {
  Costs model;
  const auto peak = [&](uint32_t every) {
    return peak_activation_bytes(PluginCaller("the model"), nullptr, model.table,
                                 ProgramOps(model.desc.get(), 0, 1, every), 4);
  };
  CHECK(peak(0) == 440);
  model.table.estimate = [](ddh_inst*, const ddh_estimate_args* args, ddh_estimate* out, ddh_err*) noexcept {
    const uint64_t kept[] = {4, 40, 400};
    out->activation_bytes = kept[args->position];
    out->lasting_bytes = kept[args->position] / 10;
    out->forward_peak_bytes = kept[args->position] / 2;
    out->backward_peak_bytes = 2 * kept[args->position];
    return ddh_rc{DDH_OK};
  };
  CHECK(peak(0) == 440 + 800);
  CHECK(peak(1) == 4 + 400 + 800);
  model.table.estimate = nullptr;
  CHECK_FALSE(peak(0));
}

TEST_CASE("a recomputed forward does not count as work", "[estimate]") {
  Costs model;
  CHECK(model.ask(1)->forward_flops == model.ask()->forward_flops);
  CHECK(model.ask(1)->backward_flops == model.ask()->backward_flops);
}

TEST_CASE("a model without estimates gives none; an invalid estimate is refused", "[estimate]") {
  Costs model;
  model.table.estimate = nullptr;
  CHECK_FALSE(model.ask());
  model.table.estimate = [](ddh_inst*, const ddh_estimate_args*, ddh_estimate*, ddh_err*) noexcept {
    return ddh_rc{DDH_NOT_FOUND};
  };
  CHECK_FALSE(model.ask());
  model.table.estimate = [](ddh_inst*, const ddh_estimate_args*, ddh_estimate* out, ddh_err*) noexcept {
    out->forward_flops = std::numeric_limits<double>::quiet_NaN();
    return ddh_rc{DDH_OK};
  };
  CHECK_THAT(sentence_of([&] { static_cast<void>(model.ask()); }),
             Catch::Contains("position 0") && Catch::Contains("finite"));
}
