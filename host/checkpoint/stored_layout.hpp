// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/stored_layout.hpp: how other programs store a model's parameters (ddh_layout_desc): some linear weights are
// [in, out] there. Everything that reads or writes weights decides and transposes here.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "ddh/sdk/file_tensor.hpp"

namespace ddhost {

struct StoredLayout {
  std::string name;                  // "transformers"
  std::set<std::string> transposed;  // parameters of the model
  std::string refused;               // why the model has no export in it, or ""
};

std::vector<StoredLayout> layouts_of(const ddh_model_desc& model);

inline bool is_transposed_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return a.size() == 2 && b.size() == 2 && a[0] == b[1] && a[1] == b[0];
}
// A parameter, its shape in the model, and that of its tensor in a file.
struct FoundShape {
  std::string param;
  std::vector<int64_t> wanted, found;
};
// The first layout that one of the shapes shows, for all of the file; without a name: none.
StoredLayout layout_shown(const std::vector<StoredLayout>& layouts, const std::vector<FoundShape>& shapes);
// For the log. `what`: the file.
std::string layout_note(const std::string& what, const StoredLayout& layout);

// Elements [offset, offset + numel) of the [out, in] that a file holds as [in, out], in fp32.
void read_transposed(const ddh::FileTensor& tensor, uint64_t offset, uint64_t numel, float* dst);

}  // namespace ddhost
