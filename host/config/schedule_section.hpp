// SPDX-License-Identifier: Apache-2.0
//
// config/schedule_section.hpp: the options of config section `schedule`, as a schema.
#pragma once

namespace ddhost {

extern const char* const kScheduleSection;

}  // namespace ddhost
