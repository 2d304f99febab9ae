// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/files/find_data.hpp: where a model's data is if the user gives no data.path. It is the only place that knows
// this, so all models look in the same folders.
#pragma once

#include <string>
#include <vector>

#include "ddh/sdk/plugin.hpp"

// For the description of an option that names a dataset.
#define DDH_DATA_PLACES "a folder in $DDHOST_DATA"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

enum class DataKind { kFolder, kFile };

// The path of `dataset`, such as "mnist" or "shakespeare/input.txt": in $DDHOST_DATA if that is set, else the first of `more`
// that exists, each relative to the folder of the program. "" if there is none. The log says which one was found. Error:
// $DDHOST_DATA is set and lacks it.
std::string find_data(const Host& host, const std::string& dataset, DataKind kind = DataKind::kFolder,
                      const std::vector<std::string>& more = {});

}  // namespace DDH_HIDDEN
}  // namespace ddh
