// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/check_description.hpp: checks every pointer, size and index of a model's description, before check_model
// checks its meaning.
#pragma once

#include "ddh/ddh.h"

namespace ddhost {

// Throws ddh::Error naming the entry. Afterwards the whole description is safe to read.
void check_description(const ddh_model_desc* model);

}  // namespace ddhost
