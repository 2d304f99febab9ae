// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/check_description.hpp: every pointer, size and index of a model's description, before check_model asks
// whether what it says makes sense.
#pragma once

#include "ddh/ddh.h"

namespace ddhost {

// Throws ddh::Error naming the entry. Afterwards all of the description can be read.
void check_description(const ddh_model_desc* model);

}  // namespace ddhost
