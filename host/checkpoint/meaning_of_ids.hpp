// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/meaning_of_ids.hpp: ddh_model_desc.meaning_of_ids in the metadata of safetensors files, and a warning where
// a file's meaning is not that of the run.
#pragma once

#include <map>
#include <string>

#include "ddh/ddh.h"

namespace ddhost {

// The key in `__metadata__`.
inline constexpr const char* kMeaningOfIds = "ddhost.meaning_of_ids";

// "": not known.
std::string meaning_of_ids(const ddh_model_desc& model);

// The `__metadata__` of a file of weights. `meaning`: "" is left out.
std::map<std::string, std::string> weights_metadata(const std::string& meaning);

// A sentence where both are known and differ, else "".
std::string warning_of_other_ids(const std::string& file, const std::string& stored, const ddh_model_desc& model);

}  // namespace ddhost
