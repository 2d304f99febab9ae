// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/gpt2_layout.hpp: transformers stores the linear weights of GPT-2 as [in, out] (its class Conv1D), and all
// others as [out, in], as this program does.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace ddhost {

inline bool is_conv1d_weight(std::string_view name) {
  constexpr std::array<std::string_view, 4> kEnds = {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight",
                                                     ".mlp.c_proj.weight"};
  return std::any_of(kEnds.begin(), kEnds.end(), [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace ddhost
