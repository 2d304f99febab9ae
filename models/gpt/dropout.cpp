// SPDX-License-Identifier: Apache-2.0
#include "dropout.hpp"

#include "../ops/counter_rng.hpp"

namespace gpt {
at::Tensor dropout(const UnitContext& u, Site site, at::Tensor x) {
  if (!u.training || u.config.dropout == 0 || u.batch.B == 0) return x;
  const auto keep_scale = static_cast<float>(1 / (1 - u.config.dropout));
  const auto threshold = static_cast<uint32_t>(u.config.dropout * 4294967296.0);
  const uint64_t stream = ops::mix(ops::mix(ops::draw(u.dropout.seed, 0) ^ static_cast<uint64_t>(u.dropout.step)) ^
                                   (static_cast<uint64_t>(u.dropout.unit) << 8 | static_cast<uint64_t>(site)));
  const int64_t part = x.numel() / u.batch.B;
  auto* at = x.mutable_data_ptr<float>();
  for (int64_t b = 0; b < u.batch.B; ++b) {
    const uint64_t key = ops::mix(stream ^ static_cast<uint64_t>(u.batch.samples[static_cast<size_t>(b)]));
    for (int64_t i = 0; i < part; ++i) {
      const auto bits = static_cast<uint32_t>(ops::draw(key, static_cast<uint64_t>(i)) >> 32);
      at[b * part + i] = bits < threshold ? 0.0F : at[b * part + i] * keep_scale;
    }
  }
  return x;
}

}  // namespace gpt
