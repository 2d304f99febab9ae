// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/gpt2_layout.hpp: transformers stores the linear weights of GPT-2 as [in, out] (its class Conv1D), and all
// others as [out, in], as this program does. Everything that reads weights decides and transposes here.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file_tensor.hpp"

namespace ddhost {

inline bool is_conv1d_weight(std::string_view name) {
  constexpr std::array<std::string_view, 4> kEnds = {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight",
                                                     ".mlp.c_proj.weight"};
  return std::any_of(kEnds.begin(), kEnds.end(), [&](std::string_view end) { return name.ends_with(end); });
}

inline bool is_transposed_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return a.size() == 2 && b.size() == 2 && a[0] == b[1] && a[1] == b[0];
}

// Whether a tensor of a file, whose shape in the model is `wanted`, shows that the file is of transformers. Of a square
// weight the shape does not tell. c_attn is never square, [C, 3C] or [3C, C], so it tells for the whole file.
inline bool shows_conv1d(std::string_view name, const FileTensor& found, const std::vector<int64_t>& wanted) {
  return name.ends_with(".attn.c_attn.weight") && is_transposed_shape(found.shape, wanted);
}
// For the log. `what`: the file.
std::string conv1d_note(const std::string& what);

// Elements [offset, offset + numel) of the [out, in] that a file holds as [in, out], in fp32.
void read_conv1d(const FileTensor& tensor, uint64_t offset, uint64_t numel, float* dst);

}  // namespace ddhost
