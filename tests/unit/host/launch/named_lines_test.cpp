// SPDX-License-Identifier: Apache-2.0
//
// Lines of ranks with a name before each: what is written, and where a long line is cut.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "launch/named_lines.hpp"

using ddhost::NamedLines;

namespace {

// What is written to a file.
class Written {
 public:
  [[nodiscard]] int stream() const { return ::fileno(file_.get()); }
  [[nodiscard]] std::string text() const {
    std::string out(1 << 16, '\0');
    out.resize(static_cast<size_t>(std::max<ssize_t>(::pread(stream(), out.data(), out.size(), 0), 0)));
    return out;
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{std::tmpfile(), std::fclose};
};

}  // namespace

TEST_CASE("each line has the name, whatever the pieces in which it comes", "[launch]") {
  const Written written;
  NamedLines lines(written.stream(), "[a 1] ");
  lines.add("one\ntw");
  lines.add("o\n\nthree");
  CHECK(written.text() == "[a 1] one\n[a 1] two\n[a 1] \n");
  lines.end();
  lines.end();
  CHECK(written.text() == "[a 1] one\n[a 1] two\n[a 1] \n[a 1] three\n");
}

TEST_CASE("a long line is cut between characters, and no byte is lost", "[launch]") {
  const std::string character = GENERATE("x", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80");
  const size_t before = NamedLines::kLongestLine - GENERATE(size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{4});
  const std::string first(before, 'a'), rest(100, 'b');
  const Written written;
  NamedLines lines(written.stream(), "");
  lines.add(first + character + rest + "\n");
  const bool fits = before + character.size() <= NamedLines::kLongestLine;
  std::string expected = first + character + rest;
  expected.insert(fits ? NamedLines::kLongestLine : before, "\n");
  CHECK(written.text() == expected + "\n");
}

TEST_CASE("bytes that are no characters are cut too", "[launch]") {
  const std::string bytes(3 * NamedLines::kLongestLine, '\xFF');
  const Written written;
  NamedLines lines(written.stream(), "");
  lines.add(bytes + "\n");
  const std::string line = std::string(NamedLines::kLongestLine, '\xFF') + "\n";
  CHECK(written.text() == line + line + line);
}
