// SPDX-License-Identifier: Apache-2.0
//
// ddh/kind/codec.h: the run's codec, as a strategy sees it.
#include "engine/services/tables/tables.hpp"

namespace ddhost::detail {
namespace {

using ddh::guard;

const RunCodec& codec_of(void* h) { return required(services_of(h).codec, "ddh.codecs"); }

}  // namespace

const ddh_codecs_api kCodecsTable = {
    sizeof(ddh_codecs_api),
    0,
    [](void* h, int32_t param, int64_t step) noexcept -> uint32_t {
      uint32_t n = 0;
      guard(nullptr, [&] { n = codec_of(h).rounds(param, step); });
      return n;
    },
    [](void* h, int32_t param) noexcept -> uint32_t {
      uint32_t n = 0;
      guard(nullptr, [&] { n = codec_of(h).max_rounds(param); });
      return n;
    },
    [](void* h, int32_t param, uint32_t round) noexcept -> uint64_t {
      uint64_t n = 0;
      guard(nullptr, [&] { n = codec_of(h).message_numel(param, round); });
      return n;
    },
    [](void* h, int32_t param, uint32_t round, float* grad, float* message, ddh_err* err) noexcept {
      return guard(err, [&] {
        codec_of(h).encode(param, round, not_null(grad, "the gradient"), not_null(message, "the message"));
      });
    },
    [](void* h, int32_t param, uint32_t round, const float* message, float* grad, ddh_err* err) noexcept {
      return guard(err, [&] {
        codec_of(h).decode(param, round, not_null(message, "the message"), not_null(grad, "the gradient"));
      });
    },
};

}  // namespace ddhost::detail
