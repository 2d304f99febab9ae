// SPDX-License-Identifier: Apache-2.0
//
// The whole matrix of strategies, worlds, transports, precisions and features.
#include "equivalence/ways.hpp"

using namespace ddhost::test;

// The whole matrix: run with DDHOST_ALL_WAYS by `./dev test --all`.
TEST_CASE("the matrix of strategies, worlds, precisions and features holds no difference", "[.matrix]") {
  const std::vector<Options> features = {{},
                                         {"train.grad_accum_steps=3"},
                                         {"train.grad_accum_steps=3", "train.reduce_order=micro_first"},
                                         {"train.clip_norm=0.05"},
                                         {"train.recompute=1"},
                                         {"model.repeat=1", "train.recompute=2"},
                                         {"model.nan_at_step=7"},
                                         {"train.eval_every=4", "train.eval_batches=2"},
                                         {"precision.reduce_dtype=bf16"},
                                         {"train.clip_value=0.003"},
                                         {"model.samples=50", "data.drop_last=false", "model.ignore_every=3"},
                                         {"model.programs=2", "train.grad_accum_steps=2"},
                                         {"model.buffers=true", "train.eval_every=4", "train.recompute=2"}};
  int cells = 0;
  for (const int world : {1, 2, 3, 4, 8}) {
    for (const char* precision : {"fp32", "bf16", "fp16"}) {
      for (Options options : features) {
        options.push_back(std::string("precision.compute=") + precision);
        options.emplace_back("precision.initial_scale_power=20");
        options.emplace_back("data.micro_batch=3");
        cells += check_all_equal(world, options);
      }
    }
  }
  WARN(cells << " cells, all equal");
}
