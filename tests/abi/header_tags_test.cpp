// SPDX-License-Identifier: Apache-2.0
//
// The ABI's headers as text: every function-pointer slot has a tag for the calling thread. Only a comment that begins
// with "Each" applies to more than the slot below it.
#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

struct Slot {
  std::string text;      // "  ddh_rc (*attach)(..."
  std::string comments;  // comments that apply to it
};

bool has_thread_tag(const std::string& comments) {
  constexpr std::array kTags{"[main]", "[step]", "[serial]", "[any]"};
  for (const char* tag : kTags) {
    if (comments.find(tag) != std::string::npos) return true;
  }
  return false;
}

// The function pointers inside struct bodies of a header, each with the comment before it and the one that ends its line.
std::vector<Slot> slots_of(const std::string& text) {
  std::vector<Slot> slots;
  std::string above;  // the last comment, in this struct or right above it
  std::string head;
  bool in_struct = false;
  bool slot_since_comment = false, speaks_for_many = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos && line.compare(first, 2, "/*") == 0) {
      const size_t open = text.find("/*", at), close = text.find("*/", open);
      const std::string comment = text.substr(open, close - open);
      if (head.empty()) head = comment;
      above = slot_since_comment || !in_struct ? comment : above + comment;
      speaks_for_many = comment.starts_with("/* Each");
      slot_since_comment = false;
      at = std::min(text.find('\n', close), text.size()) + 1;
      continue;
    }
    if (line.rfind("typedef struct", 0) == 0 && line.back() == '{') {
      in_struct = true;
    }
    if (line.rfind('}', 0) == 0) {
      in_struct = false;
      above.clear();
    }
    if (in_struct && line.find("(*") != std::string::npos) {
      // A slot may span lines; its own comment, if any, ends the last one.
      const size_t stop = text.find(';', at), line_end = std::min(text.find('\n', stop), text.size());
      const std::string wide = head.find("All: [") != std::string::npos ? head.substr(head.find("All: [")) : "";
      slots.push_back({line, above + text.substr(stop, line_end - stop) + wide});
      slot_since_comment = true;
      if (!speaks_for_many) above.clear();
      at = line_end + 1;
      continue;
    }
    at = end + 1;
  }
  return slots;
}

std::vector<fs::path> headers() {
  std::vector<fs::path> all;
  for (const fs::directory_entry& e : fs::recursive_directory_iterator(DDHOST_SOURCE_DIR "/plugin_api/include")) {
    if (e.path().extension() == ".h") all.push_back(e.path());
  }
  return all;
}

}  // namespace

TEST_CASE("every function pointer of the ABI carries a thread tag") {
  size_t n_slots = 0;
  for (const fs::path& header : headers()) {
    std::ifstream in(header);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    for (const Slot& slot : slots_of(text)) {
      INFO(header.filename().string() << ": " << slot.text);
      CHECK(has_thread_tag(slot.comments));
      ++n_slots;
    }
  }
  CHECK(n_slots > 100);
}

TEST_CASE("the first comment of a header says whether it is a draft, as the revisions of its interfaces do") {
  size_t n_interfaces = 0;
  for (const fs::path& header : headers()) {
    std::ifstream in(header);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const std::string head = text.substr(0, text.find("*/"));
    INFO(header.string());
    for (size_t at = text.find("_IFACE \"ddh."); at != std::string::npos; at = text.find("_IFACE \"ddh.", at + 1)) {
      const size_t revision = text.find('/', at) + 1;
      const bool is_draft = text.substr(revision, 2) == "0\"";
      CHECK((head.find("Draft: it may still change after 1.0.") != std::string::npos) == is_draft);
      CHECK((head.find("To be frozen at 1.0.") != std::string::npos) == !is_draft);
      ++n_interfaces;
    }
  }
  CHECK(n_interfaces >= 18);
}

TEST_CASE("a slot without a tag is found") {
  const auto slots = slots_of(
      "/* head */\ntypedef struct t {\n  /* Each does it. [main] */\n  int (*a)(void);\n  int (*b)(void);\n"
      "  /* Does more. */\n  int (*c)(void);\n  /* One. [any] */\n  int (*d)(void);\n  int (*e)(void);\n} t;\n");
  REQUIRE(slots.size() == 5);
  CHECK(has_thread_tag(slots[0].comments));
  CHECK(has_thread_tag(slots[1].comments));
  CHECK_FALSE(has_thread_tag(slots[2].comments));
  CHECK(has_thread_tag(slots[3].comments));
  CHECK_FALSE(has_thread_tag(slots[4].comments));
}
