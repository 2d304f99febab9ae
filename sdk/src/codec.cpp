// SPDX-License-Identifier: Apache-2.0
//
// The C table of a C++ codec.
#include "ddh/sdk/codec.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

const void* Codec::interface(std::string_view id) const {
  static const ddh_codec_api table = {
      sizeof(ddh_codec_api),
      0,
      [](ddh_inst* i, const ddh_codec_args* args, ddh_err* err) noexcept {
        return guard(err, [&] {
          self_as<Codec>(i).open(copy_of(args));
          self_as<Codec>(i).attach();
        });
      },
      [](ddh_inst* i, const ddh_codec_args* args, uint64_t* bytes, ddh_err* err) noexcept {
        return guard(err, [&] {
          self_as<Codec>(i).open(copy_of(args));
          *bytes = self_as<Codec>(i).plan();
        });
      },
      [](ddh_inst* i, int32_t param, int64_t step) noexcept { return self_as<Codec>(i).rounds(param, step); },
      [](ddh_inst* i, int32_t param) noexcept { return self_as<Codec>(i).max_rounds(param); },
      [](ddh_inst* i, int32_t param, uint32_t round) noexcept { return self_as<Codec>(i).message_numel(param, round); },
      [](ddh_inst* i, int32_t param, uint32_t round, float* grad, float* message, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Codec>(i).encode(param, round, grad, message); });
      },
      [](ddh_inst* i, int32_t param, uint32_t round, const float* message, float* grad, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Codec>(i).decode(param, round, message, grad); });
      },
      [](ddh_inst* i) noexcept {
        uint32_t n = 1;  // after an exception the host asks for array 0, whose function can report it
        guard(nullptr, [&] { n = static_cast<uint32_t>(self_as<Codec>(i).state().size()); });
        return n;
      },
      [](ddh_inst* i, uint32_t index, ddh_codec_state* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          const std::vector<ddh_codec_state> all = self_as<Codec>(i).state();
          if (index >= all.size()) fail(DDH_OUT_OF_RANGE, "state ", index, " does not exist; there are ", all.size());
          copy_out(all[index], *out);
        });
      },
  };
  return id == DDH_CODEC_IFACE ? &table : nullptr;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
