// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/activation_peaks.hpp: what ddh_estimate has no room for: what a position of a program allocates beside what it keeps
// for its backward, and what it keeps if its forward runs again. With it the host knows the peak of a micro-batch. A draft
// (version 0): it is not part of the ABI, and a model without it is planned by what it keeps alone.
//
//   const void* interface(std::string_view id) const override {
//     return id == ddh::kActivationPeaksInterface ? ddh::activation_peaks_of<MyModel>() : Model::interface(id);
//   }
//   ddh::ActivationPeaks peaks(const ddh_estimate_args& args);  // [main]
#pragma once

#include <string_view>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

inline constexpr std::string_view kActivationPeaksInterface = "ddh.activation_peaks/0";

// Bytes of one position for a batch of n_samples, beside those of ddh_estimate.activation_bytes.
struct ActivationPeaks {
  uint32_t struct_size = sizeof(ActivationPeaks);
  uint32_t reserved0 = 0;
  // Of activation_bytes: what is kept if the forward runs again, which is the unit's input, or the result that the next takes.
  uint64_t lasting_bytes = 0;
  // At the peak of the forward, when all that the position keeps is there.
  uint64_t forward_bytes = 0;
  // At the peak of the backward, the gradient of the result included.
  uint64_t backward_bytes = 0;
};

struct ActivationPeaksApi {
  uint32_t struct_size;
  uint32_t reserved0;
  ddh_rc (*peaks)(ddh_inst* self, const ddh_estimate_args* args, ActivationPeaks* out, ddh_err* err) noexcept;
};

// The table of a model with a function `peaks`.
template <class M>
const ActivationPeaksApi* activation_peaks_of() {
  static const ActivationPeaksApi table = {
      sizeof(ActivationPeaksApi), 0,
      [](ddh_inst* i, const ddh_estimate_args* args, ActivationPeaks* out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = self_as<M>(i).peaks(copy_of(*args)); });
      }};
  return &table;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
