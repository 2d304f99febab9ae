// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/later_gradients.hpp: for models whose gradients may come in blocks of rows (ddh_param_desc.grad_block): the size of a
// block, and what a backward leaves to be done for gradient_block.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Elements of a block of the gradient of a parameter: a 128th of it, between 16 and 256 KiB, of a matrix in multiples of 16
// rows for the kernels of products. 0: it is so small that its gradient is better whole.
inline uint64_t grad_block_of(const std::vector<int64_t>& shape) {
  constexpr uint64_t kLeastMatrix = 64 * 1024, kBlocks = 128, kLeast = 4 * 1024, kMost = 64 * 1024;
  uint64_t row = 1, rows = shape.empty() ? 0 : static_cast<uint64_t>(shape[0]);
  for (size_t d = 1; d < shape.size(); ++d) row *= static_cast<uint64_t>(shape[d]);
  if (rows * row < kLeastMatrix) return 0;
  const uint64_t step = std::lcm(shape.size() == 2 ? uint64_t{16} : 1, DDH_GRID / std::gcd(row, uint64_t{DDH_GRID}));
  const uint64_t wanted = std::clamp(rows * row / kBlocks, kLeast, kMost) / row;
  const uint64_t of_block = std::max<uint64_t>(1, wanted / step) * step;
  return 2 * of_block <= rows ? of_block * row : 0;
}

class LaterGradients {
 public:
  using Write = std::function<void(const ddh_grad_block&)>;

  // In a backward, for a parameter that its view shows as DDH_GRAD_LATER: what writes a block. It is destroyed after the last
  // block of the parameter. Of several for one parameter, which has several uses, the second and all after it add to the block.
  void keep(const ddh_param_view& param, Write write) {
    Kept& kept = kept_[param.param];
    kept.writes.push_back(std::move(write));
    kept.left = param.numel;
  }
  [[nodiscard]] bool keeps(int32_t param) const { return kept_.count(param) > 0; }

  // Implements gradient_block.
  void write(const ddh_grad_block& block) {
    const auto at = kept_.find(block.param);
    if (at == kept_.end())
      fail(DDH_FAILED_PRECONDITION, "a block of the gradient of parameter ", block.param,
           " is asked for, but the last backward did not leave it for later; ask for each block once, after the "
           "backward with DDH_GRAD_LATER");
    ddh_grad_block part = block;
    for (const Write& write : at->second.writes) {
      write(part);
      part.grad_mode = DDH_GRAD_ADD;
    }
    at->second.left -= std::min(at->second.left, block.numel);
    if (at->second.left == 0) kept_.erase(at);
  }
  void clear() noexcept { kept_.clear(); }

 private:
  struct Kept {
    std::vector<Write> writes;
    uint64_t left = 0;  // elements
  };
  std::map<int32_t, Kept> kept_;  // by parameter
};

inline bool is_later(const ddh_param_view& param) { return param.grad == nullptr && param.grad_mode == DDH_GRAD_LATER; }

// Calls `body` with each block of a whole gradient, in order.
template <class Body>
void for_blocks(const ddh_param_view& param, uint64_t grad_block, const Body& body) {
  for (uint64_t offset = 0; offset < param.numel; offset += grad_block)
    body(ddh_grad_block{sizeof(ddh_grad_block), param.param, offset, std::min(grad_block, param.numel - offset),
                        static_cast<float*>(param.grad) + offset, param.grad_mode, 0});
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
