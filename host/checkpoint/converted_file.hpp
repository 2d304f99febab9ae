// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/converted_file.hpp: a safetensors file without a name, with the tensors of a file that another program wrote
// (ddh/kind/format.h). A weight is called "weight/NAME" in it, a slot of an optimizer "slot/SLOT/NAME".
#pragma once

#include <memory>
#include <string>

#include "base/durable.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

inline constexpr std::string_view kWeightPrefix = "weight/", kSlotPrefix = "slot/";

struct ConvertedFile {
  std::shared_ptr<const NewFile> file;
  std::string what;        // "a file of torch.save"
  int64_t step = -1;       // updates of the optimizer; -1: the file has no state of one
  std::string other_step;  // a parameter that has had another number of updates, or ""

  // Opens it in this process, and in processes that this one forks.
  [[nodiscard]] std::string path() const { return ddh::str("/proc/self/fd/", file->data().descriptor()); }
};

}  // namespace ddhost
