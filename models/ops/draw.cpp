// SPDX-License-Identifier: Apache-2.0
#include "draw.hpp"

#include <ATen/ops/softmax.h>

#include <algorithm>

#include "ddh/sdk/kernels/counter_rng.hpp"

namespace ops {

Drawer::Drawer(const ddh_sample_args& args) : seed_(args.seed), temperature_(args.temperature), top_k_(args.top_k) {
  if (!(args.temperature >= 0) || args.top_k < 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "sampling takes a temperature and a top_k of 0 or more, not ", args.temperature,
              " and ", args.top_k);
}

int64_t Drawer::draw(const at::Tensor& of_device) {
  const at::Tensor logits = of_device.cpu();
  const int64_t V = logits.size(0);
  if (temperature_ == 0) return logits.argmax().item<int64_t>();
  const auto [values, indices] = logits.topk(top_k_ > 0 ? std::min(top_k_, V) : V);
  // Subtract the largest before the division: with a small temperature the others become -inf and the largest stays 0.
  const at::Tensor below = values.to(at::kDouble).sub(values.select(0, 0).to(at::kDouble));
  const at::Tensor p = at::softmax(below.div(temperature_), 0);
  double left = ddh::CounterRng(seed_, "sample").uniform(draws_++);
  for (int64_t i = 0; i < p.size(0); ++i) {
    left -= p.const_data_ptr<double>()[i];
    if (left <= 0) return indices.const_data_ptr<int64_t>()[i];
  }
  return indices.const_data_ptr<int64_t>()[0];
}

}  // namespace ops
