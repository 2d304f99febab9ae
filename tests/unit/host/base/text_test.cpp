// SPDX-License-Identifier: Apache-2.0
//
// Texts of plugins that a terminal gets: nothing changes the terminal, and nothing is left out.
#include "base/text.hpp"

#include <catch2/catch.hpp>

#include "engine/record/rank_log.hpp"

using namespace ddhost;

TEST_CASE("control characters and bytes that are not UTF-8 are shown as numbers", "[plain_text]") {
  CHECK(shown_text("a\nb\tc") == "a\nb\tc");
  CHECK(shown_text("\x1b[31mred\x07\r\x7f") == "\\x1b[31mred\\x07\\x0d\\x7f");
  CHECK(shown_text(std::string_view("\0", 1)) == "\\x00");
  CHECK(shown_text("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80") == "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(shown_text("\xc2\x9b"
                   "1m") ==
        "\\xc2\\x9b"
        "1m");  // a control character of two bytes
  CHECK(shown_text("\xff\xc3(\xed\xa0\x80") == "\\xff\\xc3(\\xed\\xa0\\x80");
  CHECK(shown_text("end\xe2\x82") == "end\\xe2\\x82");
}

TEST_CASE("a model's text for a terminal waits for the rest of a character", "[plain_text]") {
  const std::string text = "a\xe2\x82\xac\xf0\x9f\x98\x80\x1b[0m\xc3\xa9z";
  ModelText terminal(true), file(false);
  std::string shown, kept;
  for (const char c : text) {
    const std::string more = terminal.next({&c, 1});
    CHECK(is_utf8(more));
    shown += more;
    kept += file.next({&c, 1});
  }
  CHECK(shown + terminal.rest() == "a\xe2\x82\xac\xf0\x9f\x98\x80\\x1b[0m\xc3\xa9z");
  CHECK(kept + file.rest() == text);

  ModelText torn(true);
  CHECK(torn.next("x\xf0\x9f") == "x");
  CHECK(torn.next("y") == "\\xf0\\x9fy");
  CHECK(torn.next("\xe2\x82").empty());
  CHECK(torn.rest() == "\\xe2\\x82");
}

TEST_CASE("bytes become two digits each") {
  constexpr std::array<uint8_t, 4> kBytes = {0, 9, 0xa0, 0xff};
  CHECK(hex_text(kBytes) == "0009a0ff");
  CHECK(hex_text({}).empty());
}
