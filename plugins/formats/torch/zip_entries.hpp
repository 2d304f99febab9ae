// SPDX-License-Identifier: Apache-2.0
//
// formats/torch/zip_entries.hpp: the entries of a zip archive whose content is stored as it is, as torch.save writes
// it. Nothing is decompressed; every offset and length is checked.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace torch_format {

// Content by name. `bytes` outlives the result. Throws ddh::Error naming `what` where it is no such archive.
std::map<std::string, std::string_view> zip_entries(std::string_view bytes, const std::string& what);

}  // namespace torch_format
