// SPDX-License-Identifier: Apache-2.0
//
// config/foreign/yaml.cpp: the reader of YAML. It works on events, so that nothing is built that the text only names: an
// alias repeats what it stands for, and a few lines could stand for more than the memory holds.
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/emitterstyle.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <cctype>
#include <set>
#include <sstream>

#include "config/foreign/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr size_t kMostYamlLevels = 64, kMostYamlValues = 10'000;

size_t line_at(const YAML::Mark& mark) { return static_cast<size_t>(mark.line) + 1; }

// A text without quotes as YAML 1.1 reads it, the version that PyYAML implements: yes and no are truth values.
Json yaml_scalar(const std::string& text) {
  std::string word;
  for (const char c : text) word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word.empty() || word == "~" || word == "null") return nullptr;
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  const Json number = Json::parse(text.front() == '+' ? text.substr(1) : text, nullptr, /*allow_exceptions=*/false);
  return number.is_number() ? number : Json(text);
}

// Builds the values from the events.
class YamlBuilder final : public YAML::EventHandler {
 public:
  ForeignText take() {
    if (!has_document_) throw ForeignTextError("holds no value", 0);
    return std::move(out_);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) throw ForeignTextError("a second document begins; give one", line_at(mark));
    has_document_ = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(nullptr, mark, anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    throw ForeignTextError("there is an alias (*name); write the value itself", line_at(mark));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (tag != "?" && tag != "!" && !tag.empty()) refuse_tag(mark, tag);
    if (is_key()) return begin_key(text, mark);
    add(tag == "!" ? Json(text) : yaml_scalar(text), mark, anchor);  // "!": in quotes
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    begin(Json::array(), mark, tag, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    begin(Json::object(), mark, tag, anchor);
  }
  void OnMapEnd() override { end(); }

 private:
  struct Level {
    Json value;
    std::string path, key;
    bool has_key = false;
    std::set<std::string> seen;
  };

  static void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    throw ForeignTextError("there is a tag (" + plain_text(tag, kShownValue) + "), which is not read; remove it",
                           line_at(mark));
  }
  [[nodiscard]] bool is_key() const {
    return !levels_.empty() && levels_.back().value.is_object() && !levels_.back().has_key;
  }
  void begin_key(const std::string& name, const YAML::Mark& mark) {
    Level& level = levels_.back();
    if (name == "<<") throw ForeignTextError("there is a merge key (<<); write the values themselves", line_at(mark));
    if (!level.seen.insert(name).second)
      throw ForeignTextError("the key '" + plain_text(name, kShownValue) + "' occurs twice in one object",
                             line_at(mark));
    level.key = name;
    level.has_key = true;
    out_.lines.emplace(path_of(level), line_at(mark));
  }
  static std::string path_of(const Level& level) {
    if (level.key.empty()) return level.path;
    return level.path.empty() ? level.key : level.path + "." + level.key;
  }

  void begin(Json value, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (tag != "?" && !tag.empty()) refuse_tag(mark, tag);
    check(mark, anchor);
    if (is_key()) throw ForeignTextError("a key is a list or an object; give a name", line_at(mark));
    if (levels_.size() >= kMostYamlLevels)
      throw ForeignTextError("more than " + std::to_string(kMostYamlLevels) + " levels", line_at(mark));
    levels_.push_back({std::move(value), levels_.empty() ? "" : path_of(levels_.back()), "", false, {}});
  }
  void end() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    put(std::move(value));
  }
  void add(Json value, const YAML::Mark& mark, YAML::anchor_t anchor) {
    check(mark, anchor);
    if (is_key()) throw ForeignTextError("a key has no name; give one", line_at(mark));
    put(std::move(value));
  }
  void check(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor)
      throw ForeignTextError("there is an anchor (&name); write the value where it is needed", line_at(mark));
    if (++count_ > kMostYamlValues)
      throw ForeignTextError("more than " + std::to_string(kMostYamlValues) + " values", line_at(mark));
  }
  void put(Json value) {
    if (levels_.empty()) {
      out_.root = std::move(value);
    } else if (levels_.back().value.is_array()) {
      levels_.back().value.push_back(std::move(value));
    } else {
      levels_.back().value[levels_.back().key] = std::move(value);
      levels_.back().has_key = false;
    }
  }

  ForeignText out_;
  std::vector<Level> levels_;
  size_t count_ = 0;
  bool has_document_ = false;
};

// Brackets are counted first: the parser of the library calls itself for each.
void check_brackets(const std::string& text) {
  size_t open = 0, line = 1;
  for (const char c : text) {
    if (c == '\n') ++line;
    if (c == '[' || c == '{') ++open;
    if ((c == ']' || c == '}') && open > 0) --open;
    if (open > kMostYamlLevels)
      throw ForeignTextError("more than " + std::to_string(kMostYamlLevels) + " open brackets", line);
  }
}

}  // namespace

ForeignText read_yaml(const std::string& text) {
  check_brackets(text);
  std::istringstream in(text);
  YamlBuilder builder;
  try {
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    throw ForeignTextError("is not valid YAML (" + plain_text(error.msg, kShownValue) + ")", line_at(error.mark));
  }
  return builder.take();
}

}  // namespace ddhost
