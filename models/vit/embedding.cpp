// SPDX-License-Identifier: Apache-2.0
//
// Patches to tokens: a linear layer for each patch, which is the convolution with kernel and stride P; the class token in
// front; positions are added.
#include <ATen/ops/empty.h>

#include <cmath>

#include "layers.hpp"

namespace vit {
namespace {

enum Param : uint32_t { kClassToken, kPositions, kPatches };

}  // namespace

at::Tensor patches_of(const at::Tensor& pixels, int64_t patch) {
  const int64_t B = pixels.size(0), channels = pixels.size(1), grid = pixels.size(2) / patch;
  return pixels.view({B, channels, grid, patch, grid, patch})
      .permute({0, 2, 4, 1, 3, 5})
      .reshape({B * grid * grid, channels * patch * patch});
}

at::Tensor pixels_of(const at::Tensor& patches, int64_t patch) {
  const int64_t channels = patches.size(1) / (patch * patch);
  const auto grid = static_cast<int64_t>(std::llround(std::sqrt(patches.size(0))));
  return patches.view({grid, grid, channels, patch, patch})
      .permute({2, 0, 3, 1, 4})
      .reshape({channels, grid * patch, grid * patch});
}

at::Tensor embedding(const UnitContext& u) {
  const int64_t B = u.batch.B, N = u.config.n_patches(), T = N + 1, C = u.config.width;
  const at::Tensor of_patches =
      ops::linear(u.products, ops::affine(u.view, kPatches), narrowed(u, u.batch.patches), C, at::kFloat);
  const at::Device device = of_patches.device();
  at::Tensor x = at::empty({B, T, C}, of_patches.options());
  x.select(1, 0).copy_(ops::vector(ops::param(u.view, kClassToken), device).expand({B, C}));
  x.narrow(1, 1, N).copy_(of_patches.view({B, N, C}));
  x.add_(ops::vector(ops::param(u.view, kPositions), device).view({T, C}));
  return dropout(u, Site::kEmbedding, x.view({B * T, C}));
}

void embedding_backward(const UnitContext& u, at::Tensor dx) {
  const int64_t B = u.batch.B, N = u.config.n_patches(), T = N + 1, C = u.config.width;
  dx = dropout(u, Site::kEmbedding, std::move(dx));
  const ddh_param_view &token = ops::param(u.view, kClassToken), &positions = ops::param(u.view, kPositions);
  if (token.grad != nullptr || positions.grad != nullptr) {
    const at::Tensor sums = ops::column_sums(dx.view({B, T * C})).view({T, C});  // over the images
    ops::give(positions, sums.view(-1));
    ops::give(token, sums.select(0, 0));
  }
  const ops::Affine patches = ops::affine(u.view, kPatches);
  const at::Tensor dy = narrowed(u, dx.view({B, T, C}).narrow(1, 1, N)).reshape({B * N, C});
  ops::give_bias_gradient(patches.bias, dy);
  const ddh_param_view& w = patches.weight;
  if (w.grad == nullptr) return;
  const at::Tensor x = narrowed(u, u.batch.patches);
  u.products.backward_weight({B * N, u.config.patch_numel(), C}, ops::operand(dy), ops::operand(x), ops::grad(w),
                             ops::adds(w));
}

}  // namespace vit
