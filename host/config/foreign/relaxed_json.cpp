// SPDX-License-Identifier: Apache-2.0
//
// config/foreign/relaxed_json.cpp: the reader of JSON as people write it by hand (Hjson's rules).
#include <cctype>
#include <set>

#include "config/foreign/text.hpp"

namespace ddhost {
namespace {

constexpr int kMostRelaxedLevels = 64;
constexpr size_t kMostRelaxedKeys = 10'000, kLongestLiteral = 400;

bool is_blank_of_json(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

class RelaxedReader {
 public:
  explicit RelaxedReader(const std::string& text) : text_(text) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark
  }

  ForeignText read() {
    skip();
    Json root;
    if (peek() == '{') {
      root = object("", 1);
    } else if (peek() == '[') {
      root = array("", 1);
    } else {
      root = members("", 1, /*has_braces=*/false);
    }
    skip();
    if (!at_end()) fail("there is more behind the end of the outermost object");
    return {std::move(root), std::move(lines_)};
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw ForeignTextError(what, line_); }
  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
  [[nodiscard]] char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char take() {
    const char c = text_[at_++];
    if (c == '\n') ++line_;
    return c;
  }
  [[nodiscard]] bool begins_comment() const {
    return peek() == '#' || (peek() == '/' && (peek(1) == '/' || peek(1) == '*'));
  }

  // Blanks and comments.
  void skip() {
    while (!at_end()) {
      if (is_blank_of_json(peek())) {
        take();
      } else if (peek() == '/' && peek(1) == '*') {
        const size_t from = line_;
        while (!at_end() && !(peek() == '*' && peek(1) == '/')) take();
        if (at_end()) throw ForeignTextError("a comment that begins with /* has no end", from);
        at_ += 2;
      } else if (begins_comment()) {
        while (!at_end() && peek() != '\n') take();
      } else {
        return;
      }
    }
  }

  void check_level(int level) const {
    if (level > kMostRelaxedLevels) fail("more than " + std::to_string(kMostRelaxedLevels) + " levels");
  }

  Json object(const std::string& path, int level) {
    check_level(level);
    take();
    Json all = members(path, level, /*has_braces=*/true);
    return all;
  }

  Json members(const std::string& path, int level, bool has_braces) {
    Json all = Json::object();
    std::set<std::string> seen;
    const size_t from = line_;
    for (skip();; skip()) {
      if (at_end() && !has_braces) return all;
      if (at_end()) throw no_end("object", "'}'", from);
      if (has_braces && peek() == '}') return take(), all;
      const size_t line = line_;
      const std::string name = key();
      if (!seen.insert(name).second)
        throw ForeignTextError("the key '" + plain_text(name, kShownValue) + "' occurs twice in one object", line);
      if (seen.size() > kMostRelaxedKeys) fail("more than " + std::to_string(kMostRelaxedKeys) + " keys in one object");
      const std::string below = path.empty() ? name : path + "." + name;
      lines_.emplace(below, line);
      all[name] = value(below, level);
      skip();
      if (peek() == ',') take();
    }
  }

  Json array(const std::string& path, int level) {
    check_level(level);
    const size_t from = line_;
    take();
    Json all = Json::array();
    for (skip();; skip()) {
      if (at_end()) throw no_end("list", "']'", from);
      if (peek() == ']') return take(), all;
      all.push_back(value(path, level));
      skip();
      if (peek() == ',') take();
    }
  }

  std::string key() {
    std::string name;
    if (peek() == '"' || peek() == '\'') {
      name = quoted().get<std::string>();
    } else {
      while (!at_end() && !is_blank_of_json(peek()) &&
             std::string_view(",:[]{}\"'").find(peek()) == std::string_view::npos)
        name += take();
      if (name.empty()) fail(std::string("there is '") + peek() + "' where a key should be");
    }
    skip();
    if (peek() != ':') fail("behind the key '" + plain_text(name, kShownValue) + "' there is no ':'");
    take();
    return name;
  }

  Json value(const std::string& path, int level) {
    skip();
    switch (peek()) {
      case '{':
        return object(path, level + 1);
      case '[':
        return array(path, level + 1);
      case '"':
      case '\'':
        return quoted();
      case '\0':
      case '}':
      case ']':
      case ',':
      case ':':
        fail(at_end() ? "a value is missing at the end"
                      : std::string("there is '") + peek() + "' where a value should be");
      default:
        return bare(path);
    }
  }

  Json quoted() {
    const size_t from = line_;
    const char mark = peek();
    if (mark == '\'' && peek(1) == '\'' && peek(2) == '\'') return lines_of_text();
    take();
    std::string inside = "\"";
    for (;;) {
      if (at_end() || peek() == '\n') throw ForeignTextError("a text has no closing quote", from);
      const char c = take();
      if (c == mark) break;
      if (c == '\\' && !at_end()) {
        const char next = take();
        inside += next == '\'' ? std::string("'") : std::string{c, next};
      } else {
        inside += c == '"' ? std::string("\\\"") : std::string{c};
      }
    }
    Json text = Json::parse(inside + "\"", nullptr, /*allow_exceptions=*/false);
    if (!text.is_string()) throw ForeignTextError("a text holds an escape that JSON does not have", from);
    return text;
  }

  Json lines_of_text() {
    const size_t from = line_, end = text_.find("'''", at_ + 3);
    if (end == std::string::npos) throw ForeignTextError("a text that begins with ''' has no end", from);
    at_ += 3;
    std::string inside;
    while (at_ < end) inside += take();
    at_ += 3;
    return inside;
  }

  // A text without quotes takes the rest of its line, with brackets that were meant to end something.
  [[nodiscard]] ForeignTextError no_end(const std::string& what, const std::string& mark, size_t from) const {
    if (greedy_.empty()) return {"the " + what + " that begins here has no " + mark, from};
    return {"the value " + plain_text(greedy_, 40) + " of " + plain_text(greedy_key_, kShownValue) +
                " has no quotes, so that it takes the rest of its line" +
                (greedy_.find("${") == std::string::npos ? "" : " (a placeholder of a template must be filled in)"),
            greedy_line_};
  }

  // A number or a word of JSON if it is one up to the next mark, else the text up to the end of the line.
  Json bare(const std::string& path) {
    std::string word;
    for (;;) {
      const char c = peek();
      const bool ends = at_end() || c == '\n' || c == ',' || c == '}' || c == ']' || begins_comment();
      if (ends && word.size() <= kLongestLiteral) {
        Json literal = Json::parse(word, nullptr, /*allow_exceptions=*/false);
        if (!literal.is_discarded() && !literal.is_structured() && !literal.is_string()) return literal;
      }
      if (at_end() || c == '\n') break;
      word += take();
    }
    while (!word.empty() && is_blank_of_json(word.back())) word.pop_back();
    if (greedy_.empty() && word.find_first_of(",}]") != std::string::npos) {
      greedy_ = word;
      greedy_key_ = path;
      greedy_line_ = line_;
    }
    return word;
  }

  const std::string& text_;
  size_t at_ = 0, line_ = 1;
  std::string greedy_, greedy_key_;  // the first text without quotes that holds a bracket or a comma
  size_t greedy_line_ = 0;
  std::map<std::string, size_t> lines_;
};

}  // namespace

ForeignText read_relaxed_json(const std::string& text) { return RelaxedReader(text).read(); }

}  // namespace ddhost
