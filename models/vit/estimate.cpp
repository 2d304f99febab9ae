// SPDX-License-Identifier: Apache-2.0
//
// The cost of a unit of a Vision Transformer: multiplications and additions of its products, and bytes kept from forward to
// backward.
#include "../ops/block_peaks.hpp"
#include "../ops/matrix.hpp"
#include "ddh/sdk/torch/activations.hpp"
#include "vit.hpp"

namespace vit {

bool Vit::estimate(const ddh_estimate_args& args, ddh_estimate& out) {
  const ddh_model_desc& desc = desc_.get();
  const ddh_program_desc& program = *desc.programs[args.program];
  const int32_t unit = program.units[args.position];
  const double B = args.n_samples, C = static_cast<double>(config_.width), M = static_cast<double>(config_.mlp_width);
  const auto T = static_cast<double>(config_.tokens());
  const double K = static_cast<double>(config_.classes), rows = B * T;
  const double narrow = config_.compute == at::kFloat ? 4 : 2, wide = 4;  // bytes
  out = {sizeof out, 0, 0, 0, 0, 0, 0, 0};
  const auto block = [](double n) { return ddh::ActivationAllocator::block_bytes(n); };
  double bytes = 0;
  if (unit == kEmbeddingUnit) {
    out.forward_flops = 2 * B * (T - 1) * static_cast<double>(config_.patch_numel()) * C;
    out.backward_flops = out.forward_flops;  // pixels need no gradient
  } else if (unit == head_unit()) {
    out.forward_flops = 2 * B * C * K;
    out.backward_flops = 2 * out.forward_flops;
    // x, y; logits; statistics and their log-sum-exp
    bytes = block(B * C * wide) + block(B * C * narrow) + block(B * K * wide) + 3 * block(B * wide);
  } else {
    const double products = 2 * rows * (4 * C * C + 2 * C * M);
    const bool drops = config_.attention_dropout > 0 && program.kind == DDH_PROGRAM_TRAIN;
    const ops::AttentionShape shape{args.n_samples, config_.tokens(), config_.n_head, config_.width / config_.n_head,
                                    false};
    const ops::AttentionCost attention =
        ops::attention_cost(shape, ops::attention_way(shape, drops, config_.compute, device()));
    out.forward_flops = products + attention.forward_flops;
    out.backward_flops = 2 * products + attention.backward_flops;
    // x, x_mid; y_1, attended, y_2; query, key and value; the two of the MLP; statistics
    bytes = 2 * block(rows * C * wide) + 3 * block(rows * C * narrow) + block(rows * 3 * C * narrow) +
            2 * block(rows * M * narrow) + 4 * block(rows * wide);
    bytes += block(attention.kept_numel * wide);
  }
  if (program.kind == DDH_PROGRAM_EVAL) out.backward_flops = bytes = 0;
  out.activation_bytes = static_cast<uint64_t>(bytes);
  add_peaks(args, out);
  return true;
}

void Vit::add_peaks(const ddh_estimate_args& args, ddh_estimate& out) {
  const ddh_program_desc& program = *desc_.get().programs[args.program];
  const int32_t unit = program.units[args.position];
  const int64_t B = args.n_samples, C = config_.width, T = config_.tokens(), rows = B * T, patches = B * (T - 1);
  const int64_t narrow = config_.compute == at::kFloat ? 4 : 2, wide = 4;  // bytes
  const bool is_narrow = narrow < wide, trains = program.kind == DDH_PROGRAM_TRAIN;
  const auto block = [](int64_t bytes) { return ddh::ActivationAllocator::block_bytes(static_cast<double>(bytes)); };
  const double stream = block(rows * C * wide), of_classes = block(B * C * wide);
  double forward = 0, backward = 0;
  if (unit == kEmbeddingUnit) {
    const double pixels = is_narrow ? block(patches * config_.patch_numel() * narrow) : 0;
    forward = stream + block(patches * C * wide) + pixels;
    // The tokens of patches, copied, and in fp32 for the sum of the bias.
    const double tokens = block(patches * C * narrow) + (is_narrow ? block(patches * C * narrow) : 0);
    backward = stream + tokens + std::max(pixels, is_narrow ? block(patches * C * wide) : 0);
  } else if (unit == head_unit()) {
    out.lasting_bytes = out.activation_bytes;  // it does not run again
    forward = stream;
    const ops::LinearShape classes{B, C, config_.classes};
    const int64_t parts = device().by_operators() ? 0 : ops::bytes_of_parts(classes, ops::dtype_of(config_.compute));
    backward = stream + 2 * of_classes + 2 * block(B * config_.classes * wide) + block(parts);
  } else {
    const ops::AttentionShape shape{B, T, config_.n_head, C / config_.n_head, false};
    const bool drops_attention = config_.attention_dropout > 0 && trains;
    return ops::add_block_peaks({.attention = shape,
                                 .mlp_width = config_.mlp_width,
                                 .narrow_bytes = narrow,
                                 .dtype = device().by_operators() ? -1 : ops::dtype_of(config_.compute),
                                 .way = ops::attention_way(shape, drops_attention, config_.compute, device()),
                                 .drops = trains && (config_.dropout > 0 || config_.drop_path(unit - 1) > 0),
                                 .drops_hidden = trains && config_.dropout > 0,
                                 .n_qkv = config_.names == Names::kHuggingFace ? 3 : 1},
                                out);
  }
  out.forward_peak_bytes = static_cast<uint64_t>(forward);
  out.backward_peak_bytes = static_cast<uint64_t>(backward);
}

}  // namespace vit
