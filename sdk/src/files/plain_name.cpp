// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/files/plain_name.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

namespace ddh {
inline namespace v1 DDH_HIDDEN {

std::string plain_name(const std::string& name) {
  constexpr std::array<std::string_view, 3> kWrappers = {"_orig_mod", "_fsdp_wrapped_module",
                                                         "_checkpoint_wrapped_module"};
  std::string out;
  size_t begin = 0;
  for (size_t end = name.find('.'); end != std::string::npos; end = name.find('.', begin)) {
    const std::string_view word(name.data() + begin, end - begin);
    const bool is_wrapper = std::find(kWrappers.begin(), kWrappers.end(), word) != kWrappers.end();
    // A module of a model may be called "module", but seldom the outermost one.
    if (!is_wrapper && !(out.empty() && word == "module")) out.append(name, begin, end + 1 - begin);
    begin = end + 1;
  }
  return out + name.substr(begin);
}

void add_plain(std::map<std::string, FileTensor>& tensors, const std::string& name, const FileTensor& tensor,
               const std::string& prefix) {
  const auto [at, is_new] = tensors.emplace(prefix + plain_name(name), tensor);
  if (!is_new && !same_values(at->second, tensor))
    throw std::invalid_argument("it has two tensors '" + at->first + "' with different values, one of them as '" +
                                prefix + name + "'");
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
