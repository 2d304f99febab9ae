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
// Whether a parameter's tensor in a file shows that the whole file has the layout. `wanted`: its shape in the model.
bool shows(const StoredLayout& layout, const std::string& param, const std::vector<int64_t>& found,
           const std::vector<int64_t>& wanted);
// For the log. `what`: the file.
std::string layout_note(const std::string& what, const StoredLayout& layout);

// Elements [offset, offset + numel) of the [out, in] that a file holds as [in, out], in fp32.
void read_transposed(const ddh::FileTensor& tensor, uint64_t offset, uint64_t numel, float* dst);

}  // namespace ddhost
