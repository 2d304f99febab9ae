// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/codec.hpp: the C++ base class of a gradient codec. Each virtual function is the slot of that name in
// ddh/kind/codec.h, which documents it. Failures are thrown. docs/writing-a-codec.md shows one.
#pragma once

#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class Codec : public Instance {
 public:
  using Instance::Instance;
  // Gives the parameters. Called before plan, and again before attach; allocates nothing.
  virtual void open(const ddh_codec_args& args) = 0;
  // Bytes that attach allocates.
  [[nodiscard]] virtual uint64_t plan() = 0;
  virtual void attach() = 0;
  [[nodiscard]] virtual uint32_t rounds(int32_t param, int64_t step) = 0;
  [[nodiscard]] virtual uint32_t max_rounds(int32_t param) = 0;
  [[nodiscard]] virtual uint64_t message_numel(int32_t param, uint32_t round) = 0;
  virtual void encode(int32_t param, uint32_t round, float* grad, float* message) = 0;
  virtual void decode(int32_t param, uint32_t round, const float* message, float* grad) = 0;
  [[nodiscard]] virtual std::vector<ddh_codec_state> state() { return {}; }

  [[nodiscard]] const void* interface(std::string_view id) const override;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
