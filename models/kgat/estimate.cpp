// SPDX-License-Identifier: Apache-2.0
//
// What a unit of KGAT costs: multiplications and additions of its products and of its sums over edges, and bytes kept from
// forward to backward.
#include "ddh/sdk/torch/activations.hpp"
#include "kgat.hpp"

namespace kgat {

bool Kgat::estimate(const ddh_estimate_args& args, ddh_estimate& out) {
  const ddh_program_desc& program = *desc_.get().programs[args.program];
  const int32_t unit = program.units[args.position];
  const double B = args.n_samples, N = static_cast<double>(graph_.n_nodes()), E = static_cast<double>(graph_.n_edges());
  const double d = static_cast<double>(config_.embed_dim), k = static_cast<double>(config_.relation_dim);
  const double F = static_cast<double>(config_.final_width()), items = static_cast<double>(data_.n_items);
  const double narrow = config_.compute == at::kFloat ? 4 : 2, wide = 4;  // bytes
  const bool passes_graph = program.units[program.n_units - 1] == score_unit();
  const bool evaluates = program.kind == DDH_PROGRAM_EVAL, trains = program.kind == DDH_PROGRAM_TRAIN;
  const auto block = [](double n) { return ddh::ActivationAllocator::block_bytes(n); };
  double forward = 0, backward = 0, bytes = 0;
  if (unit == kEmbeddingUnit) {
    bytes = block(passes_graph ? N * d * wide : 3 * B * d * narrow);
    backward = 3 * B * (passes_graph ? 0 : d);  // sums over the rows of the batch
  } else if (unit < score_unit() && simplified_) {
    const LayerCost cost =
        simplified_cost(*simplified_, config_.width_in(layer_of(unit)), config_.layers[layer_of(unit)]);
    forward = cost.forward, backward = cost.backward, bytes = cost.bytes;
  } else if (unit < score_unit()) {
    const size_t l = layer_of(unit);
    const double in = static_cast<double>(config_.width_in(l)), w = static_cast<double>(config_.layers[l]);
    const bool has_two = config_.aggregator == Aggregator::kBiInteraction;
    const double products = 2 * N * in * w * (config_.aggregator == Aggregator::kGcn ? 1 : 2), sums = 2 * E * in;
    forward = products + sums;
    backward = 2 * products + sums;
    bytes = block(N * wide * in) + (has_two ? 3 : 2) * block(N * wide * w) +
            block(N * wide);  // s; z_1, z_2, the output; norms
  } else if (unit == score_unit()) {
    forward = evaluates ? 2 * B * F * items : 10 * B * F;  // two scores and three squares
    backward = 4 * B * F + 11 * B * F;                     // the scores again, and the gradients of three rows
    bytes = block(3 * B * F * wide);
  } else {
    const double rows = trains ? 3 * B : 2 * E * B / N;
    forward = 2 * rows * d * k;
    backward = 2 * forward;
    bytes = block(rows * k * wide);
  }
  out = {sizeof out, 0, forward, trains ? backward : 0, trains ? static_cast<uint64_t>(bytes) : 0, 0, 0, 0};
  add_peaks(args, out);
  return true;
}

void Kgat::add_peaks(const ddh_estimate_args& args, ddh_estimate& out) {
  const ddh_program_desc& program = *desc_.get().programs[args.program];
  const int32_t unit = program.units[args.position];
  const auto N = static_cast<double>(graph_.n_nodes()), rows = 3.0 * args.n_samples;
  const auto d = static_cast<double>(config_.embed_dim), k = static_cast<double>(config_.relation_dim);
  const double narrow = config_.compute == at::kFloat ? 4 : 2, wide = 4;  // bytes
  const bool passes_graph = program.units[program.n_units - 1] == score_unit();
  const auto block = [](double n) { return ddh::ActivationAllocator::block_bytes(n); };
  // The gradient of the batch's rows of the final representation is there until the embedding's.
  const double of_rows = passes_graph ? block(rows * static_cast<double>(config_.final_width()) * wide) : 0;
  double lasting = 0, forward = 0, backward = of_rows;
  if (unit == kEmbeddingUnit) {
    lasting = static_cast<double>(out.activation_bytes);  // it does not run again
    backward += block(N * d * wide);
    // The rows that TransR projected are gone, and their gradient is there.
    if (!passes_graph) backward = std::max(0.0, backward + block(rows * d * wide) - lasting);
  } else if (unit < score_unit() && simplified_) {
    const double in = static_cast<double>(config_.width_in(layer_of(unit)));
    const double width = static_cast<double>(config_.layers[layer_of(unit)]),
                 pairs = static_cast<double>(simplified_->n_pairs());
    const double of_nodes = block(N * width * wide), of_projected = block((N + pairs) * width * wide);
    const double narrowed = narrow < wide ? block(N * in * narrow) : 0, tails = block(pairs * in * narrow);
    lasting = of_nodes;
    const double edges = 3 * of_nodes + block(static_cast<double>(simplified_->n_edges()) * wide) + of_projected;
    const double products = of_projected + (narrow < wide ? block((N + pairs) * width * narrow) : 0) + narrowed +
                            tails + block(N * in * wide) + block(pairs * in * wide);
    backward += of_nodes + std::max(edges, products);
  } else if (unit < score_unit()) {
    const double in = static_cast<double>(config_.width_in(layer_of(unit)));
    const double result = block(N * static_cast<double>(config_.layers[layer_of(unit)]) * wide),
                 wide_in = block(N * in * wide);
    const bool has_two = config_.aggregator == Aggregator::kBiInteraction,
               is_sage = config_.aggregator == Aggregator::kGraphSage;
    const double inputs = (has_two ? 2 : 1) * block(N * (is_sage ? 2 : 1) * in * narrow);
    lasting = result + block(N * wide);
    forward = inputs;
    // Gradients of the linear layers' inputs, then of e and s.
    const double of_inputs = is_sage ? block(N * 2 * in * wide) : has_two ? 2 * wide_in : wide_in;
    backward += result + inputs + of_inputs + (has_two || is_sage ? 2 : 1) * wide_in;
  } else if (unit == score_unit()) {
    lasting = of_rows;  // it does not run again
  } else {
    const double of_y = block(rows * k * wide);
    const double of_dy = of_y + block(static_cast<double>(graph_.n_relations) * k * wide);
    backward = of_dy + std::max(0.0, block(rows * d * wide) + (narrow < wide ? block(rows * k * narrow) : 0) - of_y);
  }
  out.lasting_bytes = static_cast<uint64_t>(lasting);
  out.forward_peak_bytes = static_cast<uint64_t>(forward);
  out.backward_peak_bytes = static_cast<uint64_t>(backward);
}

}  // namespace kgat
