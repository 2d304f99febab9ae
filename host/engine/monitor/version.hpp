// SPDX-License-Identifier: Apache-2.0
//
// engine/monitor/version.hpp: the version of this program.
#pragma once

namespace ddhost {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace ddhost
