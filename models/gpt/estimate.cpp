// SPDX-License-Identifier: Apache-2.0
//
// The cost of a unit of a GPT: FLOPs of its products, bytes kept from forward to backward, and those that its calls take
// beside.
#include <ATen/Parallel.h>

#include "../ops/block_peaks.hpp"
#include "../ops/matrix.hpp"
#include "../ops/products.hpp"
#include "../ops/rows.hpp"
#include "ddh/sdk/torch/activations.hpp"
#include "gpt.hpp"

namespace gpt {

bool Gpt::estimate(const ddh_estimate_args& args, ddh_estimate& out) {
  const ddh_model_desc& desc = desc_.get();
  const int32_t unit = desc.programs[args.program]->units[args.position];
  const double C = static_cast<double>(config_.width), T = static_cast<double>(config_.context);
  const auto V = static_cast<double>(config_.vocab);
  const double N = args.n_samples * T;
  const double narrow = config_.compute == at::kFloat ? 4 : 2, wide = 4;  // bytes
  out = {sizeof out, 0, 0, 0, 0, 0, 0, 0};
  const auto block = [N](double bytes_of_token) { return ddh::ActivationAllocator::block_bytes(N * bytes_of_token); };
  double bytes = 0;
  if (unit == head_unit()) {
    out.forward_flops = 2 * N * C * V;
    out.backward_flops = 2 * out.forward_flops;
    // x, y; logits; statistics and their log-sum-exp
    bytes = block(C * wide) + block(C * narrow) + block(V * wide) + 3 * block(wide);
  } else if (unit > 1) {
    const double products = 2 * N * 12 * C * C;  // 3 C^2 + C^2 + 4 C^2 + 4 C^2
    const bool drops = config_.dropout > 0 && desc.programs[args.program]->kind == DDH_PROGRAM_TRAIN;
    const ops::AttentionShape shape{args.n_samples, config_.context, config_.n_head, config_.width / config_.n_head,
                                    true};
    const ops::AttentionCost attention =
        ops::attention_cost(shape, ops::attention_way(shape, drops, config_.compute, device()));
    out.forward_flops = products + attention.forward_flops;
    out.backward_flops = 2 * products + attention.backward_flops;
    // x, x_mid; y_1, attended, y_2; query, key and value; the two of the MLP; statistics
    bytes = 2 * block(C * wide) + 3 * block(C * narrow) + block(3 * C * narrow) + 2 * block(4 * C * narrow);
    bytes += 4 * block(wide) + ddh::ActivationAllocator::block_bytes(attention.kept_numel * wide);
  }
  if (desc.programs[args.program]->kind == DDH_PROGRAM_EVAL) out.backward_flops = bytes = 0;
  out.activation_bytes = static_cast<uint64_t>(bytes);
  add_peaks(args, out);
  return true;
}

void Gpt::add_peaks(const ddh_estimate_args& args, ddh_estimate& out) {
  const ddh_program_desc& program = *desc_.get().programs[args.program];
  const int32_t unit = program.units[args.position];
  const int64_t C = config_.width, V = config_.vocab, N = args.n_samples * config_.context;
  const int64_t narrow = config_.compute == at::kFloat ? 4 : 2, wide = 4;  // bytes
  const auto block = [](int64_t bytes) { return ddh::ActivationAllocator::block_bytes(static_cast<double>(bytes)); };
  const double stream = block(N * C * wide);
  const bool drops = config_.dropout > 0 && program.kind == DDH_PROGRAM_TRAIN;
  if (unit > 1 && unit < head_unit()) {
    const ops::AttentionShape shape{args.n_samples, config_.context, config_.n_head, C / config_.n_head, true};
    ops::add_block_peaks({.attention = shape,
                          .mlp_width = 4 * C,
                          .narrow_bytes = narrow,
                          .dtype = device().by_operators() ? -1 : ops::dtype_of(config_.compute),
                          .way = ops::attention_way(shape, drops, config_.compute, device()),
                          .drops = drops,
                          .drops_hidden = false,
                          .n_qkv = 1},
                         out);
  } else if (unit == head_unit()) {
    // The gradients of the norm's result and of its input.
    out.lasting_bytes = static_cast<uint64_t>(stream);
    // In 16 bits operators store the logits' gradients elsewhere; otherwise a long sum has parts.
    const double more = device().by_operators()
                            ? stream + (narrow < wide ? block(N * V * narrow) : 0)
                            : std::max(stream, block(ops::bytes_of_parts({N, C, V}, ops::dtype_of(config_.compute))));
    // Before these, in 16 bits, each thread has a rounded chunk of the logits' gradient.
    const int64_t rows = ops::chunk_rows(V, kLogitsOfChunk), chunks = (N + rows - 1) / rows;
    const auto threads = static_cast<double>(std::min<int64_t>(at::get_num_threads(), chunks));
    const bool rounds = narrow < wide && !device().by_operators();
    const double rounding = rounds ? threads * block(std::min(rows, N) * V * narrow) : 0;
    out.backward_peak_bytes = static_cast<uint64_t>(std::max(stream + more, rounding));
  } else {
    out.forward_peak_bytes = static_cast<uint64_t>(stream + (narrow < wide ? block(N * C * narrow) : 0));
    out.backward_peak_bytes = static_cast<uint64_t>(stream + block(config_.positions * C * wide));
  }
}

}  // namespace gpt
