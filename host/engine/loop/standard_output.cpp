// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/standard_output.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "ddh/sdk/plugin.hpp"
#include "engine/calls/plain_text.hpp"

namespace ddhost {

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't write to stdout: ", std::strerror(errno),
            "; give it a reader or a file on a disk with room");
}

ModelText::ModelText() : ModelText(::isatty(STDOUT_FILENO) != 0) {}

std::string ModelText::next(std::string_view piece) {
  if (!is_for_terminal_) return std::string(piece);
  std::string all = std::exchange(unfinished_, {}) + std::string(piece);
  unfinished_ = all.substr(all.size() - unfinished_bytes(all));
  all.resize(all.size() - unfinished_.size());
  return shown_text(all);
}

std::string ModelText::rest() { return shown_text(std::exchange(unfinished_, {})); }

}  // namespace ddhost
