// SPDX-License-Identifier: Apache-2.0
#include "launch/named_lines.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.hpp"

namespace ddhost {
namespace {

void write_whole(int stream, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(stream, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // ssh, which has the same terminal or file, makes it so
      pollfd until_ready{stream, POLLOUT, 0};
      ::poll(&until_ready, 1, -1);
      continue;
    }
    if (n <= 0) return;  // nobody reads it any more, which must not hold up the rank
    done += static_cast<size_t>(n);
  }
}

}  // namespace

void NamedLines::add(std::string_view text) {
  for (const char c : text) {
    if (c == '\n')
      write_line(line_.size());
    else if (line_.size() >= kLongestLine)
      write_line(line_.size() - unfinished_bytes(line_));
    if (c != '\n') line_ += c;
  }
}

void NamedLines::end() {
  if (!line_.empty()) write_line(line_.size());
}

void NamedLines::write_line(size_t bytes) {
  write_whole(stream_, name_ + line_.substr(0, bytes) + "\n");
  line_.erase(0, bytes);
}

}  // namespace ddhost
