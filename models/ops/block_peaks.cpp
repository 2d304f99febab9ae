// SPDX-License-Identifier: Apache-2.0
#include "block_peaks.hpp"

#include <ATen/Parallel.h>

#include <algorithm>

#include "attention_kernels.hpp"
#include "attention_tiles.hpp"
#include "ddh/sdk/torch/activations.hpp"
#include "products.hpp"

namespace ops {
namespace {

constexpr int64_t kWide = 4;  // bytes of fp32

double block(int64_t bytes) { return ddh::ActivationAllocator::block_bytes(static_cast<double>(bytes)); }

// Of a layer of `in` inputs and `out` outputs: the gradient of its input, of `bytes`, and the parts of its sum.
double input_gradient_bytes(const BlockSizes& s, int64_t in, int64_t out, double bytes) {
  if (s.dtype < 0) return bytes;
  return bytes + block(bytes_of_parts({s.attention.B * s.attention.T, in, out}, s.dtype));
}

// Beside the gradients of the result and of qkv.
double attention_backward_bytes(const BlockSizes& s) {
  const AttentionShape& a = s.attention;
  const int64_t rows = a.B * a.T, C = a.width();
  const double of_qkv = block(rows * 3 * C * kWide), of_stream = block(rows * C * kWide);
  const bool is_narrow = s.narrow_bytes < kWide;
  switch (s.way) {
    case AttentionWay::kFlash:
      return 3 * block(rows * C * s.narrow_bytes);
    case AttentionWay::kExplicit:  // scores and their gradients; each product of the heads
      return (is_narrow ? of_qkv : 0) + (s.drops ? 3 : 2) * block(a.B * a.H * a.T * a.T * kWide) + of_stream;
    case AttentionWay::kTiled:
      return (is_narrow ? of_qkv : 0) + block(tiled_backward_numel(a) * kWide);
    case AttentionWay::kFused: {  // in fp32, and the memory of the threads
      const int64_t threads = std::min<int64_t>(at::get_num_threads(), a.B * a.H);
      return (is_narrow ? of_qkv + of_stream : 0) +
             block(threads * attend_backward_numel({a.T, a.D, a.causal}) * kWide);
    }
  }
  return 0;
}

}  // namespace

// In the order of block_backward: the gradient of the stream is there all the time.
void add_block_peaks(const BlockSizes& s, ddh_estimate& out) {
  const int64_t rows = s.attention.B * s.attention.T, C = s.attention.width(), M = s.mlp_width;
  const bool is_narrow = s.narrow_bytes < kWide;
  const double stream = block(rows * C * kWide), hidden = block(rows * M * s.narrow_bytes);
  const double wide_hidden = block(rows * M * kWide), qkv = block(rows * 3 * C * kWide);
  // A gradient of a branch: in 16 bits, or a copy with dropout, or the stream's itself.
  const double branch = is_narrow ? block(rows * C * s.narrow_bytes) : s.drops ? stream : 0;
  const double making_branch = branch + (is_narrow && s.drops ? stream : 0);
  // Gradients of the activation and of its input; of a bias they are summed in fp32.
  const double mlp = branch + 2 * hidden + std::max(is_narrow ? wide_hidden : 0, input_gradient_bytes(s, C, M, stream));
  const double before_attention =
      stream + branch + stream;  // of the second norm's result, the branch, attention's result
  const double attention = before_attention + qkv + attention_backward_bytes(s);
  const double narrow_qkv = is_narrow ? block(rows * 3 * C * s.narrow_bytes) : 0;
  const double of_part =
      (s.n_qkv > 1 ? block(rows * C * s.narrow_bytes) : 0) + (is_narrow ? block(rows * 3 * C / s.n_qkv * kWide) : 0);
  const double inputs =
      before_attention + qkv + narrow_qkv + std::max(of_part, input_gradient_bytes(s, C, 3 * C / s.n_qkv, stream));
  const double backward = stream + std::max({making_branch, mlp, attention, inputs});
  // The result. The widened copy of a dropped activation is gone by then.
  const double forward = std::max(stream, is_narrow && s.drops_hidden ? wide_hidden : 0);
  out.lasting_bytes = static_cast<uint64_t>(stream);
  out.forward_peak_bytes = static_cast<uint64_t>(forward);
  out.backward_peak_bytes = static_cast<uint64_t>(backward);
}

}  // namespace ops
