// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/required_slots.hpp: the functions that a table of an interface must have. Their headers say which may be NULL.
#pragma once

#include <string_view>

namespace ddhost {

// The name of the first required function that is NULL in the table of `id`, whose minimum size has been checked.
// nullptr: none, or the interface is unknown.
const char* missing_slot(std::string_view id, const void* table);

}  // namespace ddhost
