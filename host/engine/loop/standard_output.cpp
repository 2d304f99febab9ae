// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/standard_output.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't write to stdout: ", std::strerror(errno),
            "; give it a reader or a file on a disk with room");
}

}  // namespace ddhost
