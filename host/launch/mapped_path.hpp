// SPDX-License-Identifier: Apache-2.0
//
// launch/mapped_path.hpp: an access to a mapped file beyond its end raises SIGBUS: another program has cut the file short.
// This finds the file's name, whoever mapped it: the host, a plugin, or the loader of libraries.
#pragma once

#include <csignal>
#include <cstddef>

namespace ddhost {

// A sentence that names the file for a SIGBUS; false: it has another reason. Safe in signal handlers.
bool write_cut_file(const siginfo_t& info, char* text, size_t capacity);

}  // namespace ddhost
