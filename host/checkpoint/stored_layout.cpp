// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/stored_layout.hpp"

#include <algorithm>
#include <array>

#include "engine/numerics/kernels.hpp"

namespace ddhost {

std::vector<StoredLayout> layouts_of(const ddh_model_desc& model) {
  std::vector<StoredLayout> out;
  for (uint32_t l = 0; l < model.n_layouts; ++l) {
    const ddh_layout_desc& given = *model.layouts[l];
    StoredLayout& layout = out.emplace_back();
    layout.name = given.name;
    layout.refused = given.refused == nullptr ? "" : given.refused;
    for (uint32_t i = 0; i < given.n_transposed; ++i) layout.transposed.insert(model.params[given.transposed[i]]->name);
  }
  return out;
}

StoredLayout layout_shown(const std::vector<StoredLayout>& layouts, const std::vector<FoundShape>& shapes) {
  for (const StoredLayout& layout : layouts)
    for (const FoundShape& s : shapes)
      if (s.found != s.wanted && is_transposed_shape(s.found, s.wanted) && layout.transposed.contains(s.param))
        return layout;
  return {};
}

std::string layout_note(const std::string& what, const StoredLayout& layout) {
  return what + " stores linear weights as " + layout.name + " does, [in, out]: they are transposed";
}

// Element i of [out, in] is in row i % in of the file's [in, out].
void read_transposed(const ddh::FileTensor& tensor, uint64_t offset, uint64_t numel, float* dst) {
  const auto in = static_cast<uint64_t>(tensor.shape[0]), out = static_cast<uint64_t>(tensor.shape[1]);
  const uint64_t width = ddh_dtype_bytes(tensor.dtype);
  alignas(float) std::array<char, 4096> piece{};
  for (uint64_t done = 0; done < numel;) {
    const uint64_t n = std::min<uint64_t>(piece.size() / width, numel - done);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t at = offset + done + i, element = at % in * out + at / in;
      std::memcpy(piece.data() + i * width, static_cast<const char*>(tensor.data) + element * width, width);
    }
    kernels::cast(dst + done, DDH_F32, piece.data(), tensor.dtype, n);
    done += n;
  }
}

}  // namespace ddhost
