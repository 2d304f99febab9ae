// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/files/plain_name.hpp: names of parameters without what wrappers of torch put into them.
#pragma once

#include <map>
#include <string>

#include "ddh/sdk/files/file_tensor.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// torch.compile, FSDP and activation checkpointing add a word wherever they wrap a module; DistributedDataParallel adds
// "module." in front. "module._orig_mod.h.0._checkpoint_wrapped_module.w" is "h.0.w".
std::string plain_name(const std::string& name);

// Adds a tensor as `prefix` and its plain name. Throws std::invalid_argument where that name has other values already.
void add_plain(std::map<std::string, FileTensor>& tensors, const std::string& name, const FileTensor& tensor,
               const std::string& prefix = "");

}  // namespace DDH_HIDDEN
}  // namespace ddh
