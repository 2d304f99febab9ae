// SPDX-License-Identifier: Apache-2.0
//
// tests/support/golden_fill.hpp: the generator behind the reference tensors, so that full-size weights need no file: an
// FNV-1a hash of a tensor's name starts a splitmix64 stream.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddhost::test {

inline uint64_t fnv1a64(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

// Output number i (from 0) of the stream of `name`.
inline uint64_t stream_at(uint64_t name_hash, uint64_t i) {
  uint64_t z = name_hash + (i + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// In [-1, 1), exact in fp32.
inline double uni_at(uint64_t name_hash, uint64_t i) {
  return static_cast<double>(stream_at(name_hash, i) >> 40) * 0x1p-23 - 1.0;
}

inline std::vector<int64_t> golden_ints(std::string_view name, uint64_t mod, uint64_t numel) {
  const uint64_t h = fnv1a64(name);
  std::vector<int64_t> out(numel);
  for (uint64_t i = 0; i < numel; ++i) out[i] = static_cast<int64_t>(stream_at(h, i) % mod);
  return out;
}

// `scale * uni`, rounded once to fp32.
inline std::vector<float> golden_uni(std::string_view name, uint64_t numel, double scale = 1.0) {
  const uint64_t h = fnv1a64(name);
  std::vector<float> out(numel);
  for (uint64_t i = 0; i < numel; ++i) out[i] = static_cast<float>(uni_at(h, i) * scale);
  return out;
}

// The weight rule, by name and shape.
inline std::vector<float> golden_fill(const std::string& name, const std::vector<int64_t>& shape, double gain = 1.0) {
  uint64_t numel = 1;
  for (const int64_t n : shape) numel *= static_cast<uint64_t>(n);
  const auto affine = [&](double offset, double scale) {
    const uint64_t h = fnv1a64(name);
    std::vector<float> out(numel);
    for (uint64_t i = 0; i < numel; ++i) out[i] = static_cast<float>(offset + scale * uni_at(h, i));
    return out;
  };
  const std::string_view n = name;
  if (n.ends_with("num_batches_tracked")) return std::vector<float>(numel, 0.0F);
  if (n.ends_with("running_var")) return affine(1.0, 0.5);
  if (n.ends_with("running_mean")) return golden_uni(name, numel, 0.1);
  if (shape.size() <= 1 && (n.ends_with("weight") || n.ends_with("lambda1"))) return affine(1.0, 0.1);
  if (shape.size() <= 1) return golden_uni(name, numel, 0.1);
  if (shape[0] == 1) return golden_uni(name, numel, 0.5);
  const double fan_in = static_cast<double>(numel / static_cast<uint64_t>(shape[0]));
  return golden_uni(name, numel, gain * std::sqrt(3.0 / fan_in));
}

}  // namespace ddhost::test
