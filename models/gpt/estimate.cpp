// SPDX-License-Identifier: Apache-2.0
//
// The cost of a unit of a GPT: FLOPs of its products, and bytes kept from forward to backward.
#include "gpt.hpp"

namespace gpt {

bool Gpt::estimate(const ddh_estimate_args& args, ddh_estimate& out) {
  const ddh_model_desc& desc = desc_.get();
  const int32_t unit = desc.programs[args.program]->units[args.position];
  const double C = static_cast<double>(config_.width), T = static_cast<double>(config_.context);
  const double V = static_cast<double>(config_.vocab), H = static_cast<double>(config_.n_head);
  const double N = args.n_samples * T;
  const double narrow = config_.compute == at::kFloat ? 4 : 2, wide = 4;  // bytes
  out = {sizeof out, 0, 0, 0, 0};
  double bytes = 0;  // of a token
  if (unit == head_unit()) {
    out.forward_flops = 2 * N * C * V;
    out.backward_flops = 2 * out.forward_flops;
    bytes = C * (wide + narrow) + V * wide + 3 * wide;  // x, y; logits; statistics and their log-sum-exp
  } else if (unit > 1) {
    const double products = 2 * N * 12 * C * C;  // 3 C^2 + C^2 + 4 C^2 + 4 C^2
    const double attention = 4 * N * T * C;      // q k^T and p v; its backward has five products
    out.forward_flops = products + attention;
    out.backward_flops = 2 * products + 2.5 * attention;
    bytes = C * (2 * wide + 14 * narrow) + 4 * wide + H * wide;  // x, x_mid; what products take; statistics
    if (config_.dropout > 0) bytes += H * T * wide - H * wide;   // probabilities in place of log-sum-exp
  }
  if (desc.programs[args.program]->kind == DDH_PROGRAM_EVAL) out.backward_flops = bytes = 0;
  out.activation_bytes = static_cast<uint64_t>(N * bytes);
  return true;
}

}  // namespace gpt
