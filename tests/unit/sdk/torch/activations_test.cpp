// SPDX-License-Identifier: Apache-2.0
//
// The allocator of LibTorch's CPU tensors: which block a tensor gets.
#include "ddh/sdk/torch/activations.hpp"

#include <catch2/catch.hpp>

namespace {

constexpr size_t kMiB = size_t{1} << 20;

void* place_of(ddh::ActivationAllocator& allocator, size_t bytes) { return allocator.allocate(bytes).get(); }

}  // namespace

TEST_CASE("a freed block serves the next tensor of its size", "[images]") {
  ddh::ActivationAllocator allocator;
  for (const size_t bytes : {size_t{100}, kMiB / 2, 3 * kMiB, 20 * kMiB})
    CHECK(place_of(allocator, bytes) == place_of(allocator, bytes));
}

TEST_CASE("a large freed block serves a smaller tensor, and is its own size again later", "[images]") {
  ddh::ActivationAllocator allocator;
  void* const large = place_of(allocator, 20 * kMiB);
  CHECK(place_of(allocator, 6 * kMiB) == large);
  CHECK(place_of(allocator, 20 * kMiB) == large);
  CHECK(place_of(allocator, 4 * kMiB) != large);  // it would waste more than three quarters
  const c10::DataPtr taken = allocator.allocate(20 * kMiB);
  CHECK(taken.get() == large);
  CHECK(place_of(allocator, 6 * kMiB) != large);
}

TEST_CASE("a small tensor takes no larger block", "[images]") {
  ddh::ActivationAllocator allocator;
  void* const block = place_of(allocator, 2000);
  CHECK(place_of(allocator, 1500) != block);
}
