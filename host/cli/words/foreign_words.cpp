// SPDX-License-Identifier: Apache-2.0
#include "cli/words/foreign_words.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "config/foreign/table.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr const char* kCompat = "--compat";

class Words {
 public:
  Words(std::vector<std::string>& words, CommandLine& line) : words_(words), line_(line) {}

  void take() {
    take_files();  // first, because the meaning of other words depends on them
    std::vector<std::string> ours;
    for (at_ = 0; at_ < words_.size(); ++at_) {
      if (at_ == 0 && is_command(words_[0])) {
        ours.emplace_back("train");
      } else if (!take_compat() && !take_flag(ours)) {
        refuse_script();
        const bool is_value =
            at_ > 0 && words_[at_ - 1].starts_with("--") && words_[at_ - 1].find('=') == std::string::npos;
        ours.push_back(is_value ? words_[at_] : with_two_dashes(words_[at_]));
      }
    }
    words_ = std::move(ours);
    for (ForeignChoice& choice : line_.foreign)
      if (compat_format_.empty() || compat_format_ == choice.format) choice.version = line_.compat_version;
  }

 private:
  static bool is_command(const std::string& word) {
    const auto& tables = foreign_tables();
    return std::any_of(tables.begin(), tables.end(), [&](const ForeignTable& table) { return table.command == word; });
  }

  // The file that the other program takes where the line names none.
  void take_default_file() {
    const char* const home = std::getenv("HOME");
    for (const ForeignTable& table : foreign_tables()) {
      if (table.command.empty() || table.command != command_ || table.default_file.empty() || home == nullptr) continue;
      const auto is_given = [&](const ForeignChoice& choice) { return choice.format == table.format; };
      const fs::path file = home + table.default_file.substr(1);  // "~/..."
      std::error_code ec;
      if (std::none_of(line_.foreign.begin(), line_.foreign.end(), is_given) && fs::is_regular_file(file, ec))
        line_.foreign.push_back({file, table.format, ""});
    }
  }

  [[nodiscard]] std::string name() const { return words_[at_].substr(0, words_[at_].find('=')); }
  // "--flag=value", or the next word.
  std::string value() {
    const std::string& word = words_[at_];
    if (const size_t equals = word.find('='); equals != std::string::npos) return word.substr(equals + 1);
    if (at_ + 1 >= words_.size()) ddh::fail(DDH_INVALID_ARGUMENT, word, " has no value; give one");
    return words_[++at_];
  }

  // --compat FORMAT-VERSION
  bool take_compat() {
    if (name() != kCompat) return false;
    const std::string text = value();
    const size_t dash = text.rfind('-');
    const std::string version = dash == std::string::npos ? "" : text.substr(dash + 1);
    compat_format_ = text.substr(0, dash);
    const bool is_version = !version.empty() && version.find_first_not_of("0123456789.") == std::string::npos &&
                            version.front() != '.' && version.back() != '.';
    if (foreign_table(compat_format_) == nullptr || !is_version) {
      std::string formats;
      for (const ForeignTable& table : foreign_tables()) formats += (formats.empty() ? "" : ", ") + table.format;
      ddh::fail(DDH_INVALID_ARGUMENT, kCompat, " '", plain_text(text, kShownValue),
                "' is not a program and its version; give NAME-X.Y, where NAME is one of ", formats);
    }
    line_.compat_version = version;
    return true;
  }

  // The tables' entry for the word: with one dash or two, "-" or "_" within, "=" or a blank before its value.
  [[nodiscard]] static std::pair<const ForeignTable*, const Json*> entry_of(const std::string& name) {
    if (name.size() < 3 || name[0] != '-') return {nullptr, nullptr};
    std::string known = "--" + name.substr(name[1] == '-' ? 2 : 1);
    std::replace(known.begin() + 2, known.end(), '-', '_');
    for (const ForeignTable& table : foreign_tables())
      if (const auto at = table.flags.find(known); at != table.flags.end()) return {&table, &*at};
    return {nullptr, nullptr};
  }

  void take_files() {
    std::vector<std::string> rest;
    if (!words_.empty()) command_ = words_[0];
    for (at_ = 0; at_ < words_.size(); ++at_) {
      const auto [table, flag] = entry_of(name());
      if (flag == nullptr || !flag->contains("file"))
        rest.push_back(words_[at_]);
      else
        take_file(*table, (*flag)["file"] == "needed");
    }
    words_ = std::move(rest);
    take_default_file();
  }

  bool take_flag(std::vector<std::string>& ours) {
    const auto [table, flag] = entry_of(name());
    if (flag == nullptr) return false;
    const std::string word = name();
    if (flag->value("switch", false)) {
      if (!is_on()) return true;
    } else if (!flag->contains("no_effect")) {
      give(word, *flag, value(), ours);
      return true;
    } else {
      static_cast<void>(value());
    }
    for (const Json& more : flag->value("adds", Json::array())) ours.push_back(more.get<std::string>());
    if (flag->contains("no_effect"))
      line_.unused.push_back(word + " has no effect here: " + (*flag)["no_effect"].get<std::string>());
    return true;
  }

  // A flag with a value becomes words of ours.
  void give(const std::string& word, const Json& flag, const std::string& given, std::vector<std::string>& ours) const {
    if (flag.contains("only")) {
      if (flag["only"] != given)
        ddh::fail(DDH_INVALID_ARGUMENT, word, " ", flag["refuse"].get<std::string>(), "; leave it out");
      return;
    }
    if (flag.contains("by_value")) {
      if (!flag["by_value"].contains(given)) {
        std::string list;
        for (const auto& [text, unused] : flag["by_value"].items()) list += (list.empty() ? "" : ", ") + text;
        ddh::fail(DDH_INVALID_ARGUMENT, word, " '", plain_text(given, kShownValue),
                  "' has no counterpart here; give one of ", list);
      }
      for (const Json& more : flag["by_value"][given]) ours.push_back(more.get<std::string>());
      return;
    }
    const Json values = flag.value("values", Json::object());
    const std::string ours_for_it = values.value(given, given);
    if (flag.contains("is")) {
      ours.push_back(flag["is"].get<std::string>());
      ours.push_back(ours_for_it);
      return;
    }
    const char* const key = !line_.foreign.empty() && flag.contains("sets_beside_file") ? "sets_beside_file" : "sets";
    ours.push_back(flag.at(key).get<std::string>() + "=" + ours_for_it);
  }

  // A switch may have a truth value, after "=" or as the next word.
  bool is_on() {
    const std::string& word = words_[at_];
    const size_t equals = word.find('=');
    const bool follows = equals == std::string::npos && at_ + 1 < words_.size() && truth_of(words_[at_ + 1]);
    if (equals == std::string::npos && !follows) return true;
    return truth_of(follows ? words_[++at_] : word.substr(equals + 1)).value_or(true);
  }
  static std::optional<bool> truth_of(const std::string& word) {
    if (word == "True" || word == "true") return true;
    if (word == "False" || word == "false") return false;
    return std::nullopt;
  }

  // A long option with one dash is no cluster of short ones.
  static std::string with_two_dashes(const std::string& word) {
    const bool is_long = word.size() > 2 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])) != 0;
    return is_long ? "-" + word : word;
  }

  void refuse_script() const {
    const std::string& word = words_[at_];
    if (word.ends_with(".py") && word[0] != '-' && word.find('=') == std::string::npos)
      ddh::fail(DDH_INVALID_ARGUMENT, "'", plain_text(word, kShownValue),
                "' is a script, and this program trains its own models; leave it out and choose a model with --model");
    if (word == "-m" || word == "--module")
      ddh::fail(DDH_INVALID_ARGUMENT, word,
                " names a module of a script, and this program trains its own models; leave ",
                "it out and choose a model with --model");
  }

  void take_file(const ForeignTable& table, bool is_needed) {
    std::error_code ec;
    const bool has_value = words_[at_].find('=') != std::string::npos;
    const bool follows = at_ + 1 < words_.size() && fs::is_regular_file(words_[at_ + 1], ec);
    if (!is_needed && !has_value && !follows) return;
    line_.foreign.push_back({value(), table.format, ""});
  }

  std::vector<std::string>& words_;
  CommandLine& line_;
  size_t at_ = 0;
  std::string compat_format_, command_;
};

}  // namespace

void take_foreign_words(std::vector<std::string>& words, CommandLine& line) { Words(words, line).take(); }

}  // namespace ddhost
