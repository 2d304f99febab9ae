// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/saved_order.hpp: what a checkpoint says about the order of samples, and whether this program continues it.
#pragma once

#include <string>
#include <utility>

#include "checkpoint/manifest.hpp"

namespace ddhost {

// An entry of Manifest::host.
std::pair<std::string, std::string> sample_order_entry();

// The training programs whose samples have another order now than when the checkpoint was saved ("'train' (100 samples)"),
// or "". `from_file`: the run reads its order from data.order, which is always continued.
std::string programs_in_another_order(const Manifest& manifest, bool from_file);

}  // namespace ddhost
