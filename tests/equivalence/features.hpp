// SPDX-License-Identifier: Apache-2.0
//
// tests/equivalence/features.hpp: the toy model with all features (DDH_FEATURE_*) in its descriptor, as the options of
// toy_desc.hpp require.
#pragma once

#include "equivalence/variants.hpp"
#include "fixtures/harness/built.hpp"

namespace ddhost::test {

inline std::string features_model() { return test_plugin("toy_features"); }

// Options of a run with that model.
inline Options featured(const Options& options) { return joined({"model.plugin=" + features_model()}, options); }

// A variant on a device with its own memory and delayed streams.
inline Variant on_sim(const std::string& strategy) {
  return {strategy, "loop", {"--device", "sim", "device.delay_us=30", "device.jitter_us=100", "device.seed=5"}};
}

// Bytes of a parameter of this many elements, padded to 64.
inline uint64_t padded(uint64_t numel) { return (numel + 63) / 64 * 64 * sizeof(float); }

}  // namespace ddhost::test
