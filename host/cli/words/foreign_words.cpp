// SPDX-License-Identifier: Apache-2.0
#include "cli/words/foreign_words.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "cli/words/foreign_flags.hpp"
#include "cli/words/parser_flags.hpp"
#include "config/foreign/table.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr const char* kCompat = "--compat";

// As parsers of Python take it.
std::optional<bool> truth_of(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* text : {"true", "yes", "t", "y", "1"})
    if (word == text) return true;
  for (const char* text : {"false", "no", "f", "n", "0"})
    if (word == text) return false;
  return std::nullopt;
}

class ForeignWords {
 public:
  ForeignWords(std::vector<std::string>& words, CommandLine& line, const CLI::App& app)
      : words_(words), line_(line), switches_(switches_of(app)) {}

  void take() {
    take_files();  // first, because the meaning of other words depends on them
    flags_ = ForeignFlags(!line_.foreign.empty());
    std::vector<std::string> ours;
    for (at_ = 0; at_ < words_.size(); ++at_) {
      if (at_ == 0 && is_command(words_[0])) {
        ours.emplace_back("train");
      } else if (!take_compat() && !take_flag(ours) && !take_dotted(ours)) {
        refuse_script();
        ours.push_back(may_be_value() ? words_[at_] : with_two_dashes(words_[at_]));
      }
    }
    flags_.finish(ours);
    line_.unused = flags_.unused();
    line_.denied = flags_.denied();
    line_.given_for = flags_.given();
    take_variables(ours);
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

  // Whether the word follows a flag, which may have no value.
  [[nodiscard]] bool may_be_value() const {
    return at_ > 0 && words_[at_ - 1].starts_with("--") && words_[at_ - 1].find('=') == std::string::npos;
  }
  // Whether the word follows nothing that takes it as its value.
  [[nodiscard]] bool is_positional() const {
    if (at_ == 0 || words_[at_].starts_with('-')) return at_ == 0;
    const std::string& before = words_[at_ - 1];
    if (!before.starts_with('-') || before.find('=') != std::string::npos) return true;
    const auto [table, flag] = entry_of(before);
    if (flag != nullptr) return true;  // it has taken its value
    return std::find(switches_.begin(), switches_.end(), with_two_dashes(before)) != switches_.end();
  }
  [[nodiscard]] std::string name() const { return words_[at_].substr(0, words_[at_].find('=')); }
  // "--flag=value", or the next word.
  std::string value() {
    const std::string& word = words_[at_];
    if (const size_t equals = word.find('='); equals != std::string::npos) return word.substr(equals + 1);
    if (at_ + 1 >= words_.size() || words_[at_ + 1].starts_with("--"))
      ddh::fail(DDH_INVALID_ARGUMENT, word, " has no value; give one");
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
    const ForeignTable* const table = foreign_table(compat_format_);
    if (table == nullptr || table->keys.empty() || !is_version) {
      std::string formats;
      for (const ForeignTable& known : foreign_tables())
        if (!known.keys.empty()) formats += (formats.empty() ? "" : ", ") + known.format;
      ddh::fail(DDH_INVALID_ARGUMENT, kCompat, " '", plain_text(text, kShownValue),
                "' is not a program and its version; give NAME-X.Y, where NAME is one of ", formats);
    }
    if (is_before(table->newest, version))
      ddh::fail(DDH_INVALID_ARGUMENT, kCompat, " '", plain_text(text, kShownValue), "' is newer than ", table->newest,
                ", the newest version that is known here; give that one, or leave it out");
    line_.compat_version = version;
    line_.compat_format = compat_format_;
    return true;
  }

  // The name as the tables have it.
  static std::string known_name(const std::string& name) {
    if (name.size() <= 2 || name[0] != '-') return name;
    std::string known = "--" + name.substr(name[1] == '-' ? 2 : 1);
    std::replace(known.begin() + 2, known.end(), '-', '_');
    return known;
  }
  // The tables' entry for the word: with one dash or two, "-" or "_" within, "=" or a blank before its value.
  [[nodiscard]] static std::pair<const ForeignTable*, const Json*> entry_of(const std::string& name) {
    if (name.size() < 2 || name[0] != '-') return {nullptr, nullptr};
    const std::string known = known_name(name);
    for (const ForeignTable& table : foreign_tables())
      if (const auto at = table.flags.find(known); at != table.flags.end()) return {&table, &*at};
    for (const ForeignTable& table : foreign_tables())  // "--name_*": all that begin so
      for (const auto& [flag, entry] : table.flags.items())
        if (flag.ends_with('*') && known.starts_with(flag.substr(0, flag.size() - 1))) return {&table, &entry};
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
    if (flag->contains("each")) {
      take_each(*flag, ours);
    } else if (!flag->value("switch", false) && !is_without_effect(*flag)) {
      const Json entry = meant(*flag);
      flags_.give(word, entry, value_of(entry), ours);
    } else if (is_on()) {
      flags_.turn_on(word, *flag, ours);
    } else {
      flags_.turn_off(word, *flag);
    }
    return true;
  }

  // The entry, with other fields where the line has a flag that they depend on; null takes a field away.
  [[nodiscard]] Json meant(const Json& flag) const {
    Json entry = flag;
    const Json beside = entry.value("beside", Json::object());
    for (const auto& [other, fields] : beside.items())
      if (has_word(other)) entry.merge_patch(fields);
    return entry;
  }

  // Whether the line has this flag, written "--flag", or its last value is one of these, written "--flag=this|that".
  [[nodiscard]] bool has_word(const std::string& wanted) const {
    const size_t equals = wanted.find('=');
    bool has = false;
    for (size_t i = 0; i < words_.size(); ++i) {
      const size_t end = words_[i].find('=');
      if (known_name(words_[i].substr(0, end)) != known_name(wanted.substr(0, equals))) continue;
      if (equals == std::string::npos) return true;
      const std::string next = i + 1 < words_.size() ? words_[i + 1] : "";
      const std::string given = end == std::string::npos ? next : words_[i].substr(end + 1);
      has = ("|" + wanted.substr(equals + 1) + "|").find("|" + given + "|") != std::string::npos;
    }
    return has;
  }

  // Whether the word has no effect, and no value follows: it may be a switch in another version.
  [[nodiscard]] bool is_without_effect(const Json& flag) const {
    if (!flag.contains("no_effect") || words_[at_].find('=') != std::string::npos) return false;
    return at_ + 1 >= words_.size() || !is_value(words_[at_ + 1]);
  }
  // Whether a word may be the value of a flag without effect. A flag, or key=value of this program, is none.
  [[nodiscard]] static bool is_value(const std::string& word) {
    const bool is_number =
        word.size() > 1 && word[0] == '-' && word.find_first_not_of("0123456789.", 1) == std::string::npos;
    const bool has_blank = word.find(' ') != std::string::npos;
    if (word.starts_with('-')) return is_number || has_blank;
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (equals == std::string::npos) return true;
    const auto& tables = foreign_tables();
    return key.find('.') == std::string::npos && !key.starts_with('+') &&
           std::none_of(tables.begin(), tables.end(),
                        [&](const ForeignTable& table) { return table.words.contains(key); });
  }
  // Further words that the flag knows belong to its value.
  std::string value_of(const Json& flag) {
    const bool has_equals = words_[at_].find('=') != std::string::npos;
    std::string text = has_equals || !flag.contains("no_effect") ? value() : words_[++at_];
    const auto belongs = [&](const std::string& word) {
      if (flag.contains("by_word")) return flag["by_word"].contains(word);
      constexpr std::array kActing = {"sets", "is", "by_value", "collects", "keeps"};
      const auto acts = [&](const char* field) { return flag.contains(field); };
      return flag.contains("no_effect") && std::none_of(kActing.begin(), kActing.end(), acts) && is_about_training() &&
             !word.starts_with('-') && word.find('=') == std::string::npos && !word.ends_with(".py");
    };
    while (!has_equals && at_ + 1 < words_.size() && belongs(words_[at_ + 1])) text += " " + words_[++at_];
    return text;
  }

  // A list goes on up to the next flag or key=value.
  void take_each(const Json& flag, std::vector<std::string>& ours) {
    const bool has_value = words_[at_].find('=') != std::string::npos;
    ours.push_back(name());
    std::vector<std::string> values;
    if (has_value) values.push_back(value());
    while (!has_value && at_ + 1 < words_.size() && words_[at_ + 1][0] != '-' &&
           words_[at_ + 1].find('=') == std::string::npos)
      values.push_back(words_[++at_]);
    for (const std::string& mapped : ForeignFlags::each(flag, values)) ours.push_back(mapped);
  }

  // key=value of a program that composes its configuration from such words, also with + or ++ in front.
  bool take_dotted(std::vector<std::string>& ours) {
    const std::string& word = words_[at_];
    const size_t equals = word.find('=');
    if (word[0] == '~' && !may_be_value())
      ddh::fail(DDH_INVALID_ARGUMENT, "'", plain_text(word, kShownValue),
                "' removes a key, and every key has a value here; give it the value that you want: `ddhost --dry-run` ",
                "prints all keys");
    if (equals == std::string::npos || word[0] == '-') return false;
    const size_t begin = may_be_value() ? 0 : word.starts_with("++") ? 2 : word[0] == '+' ? 1 : 0;
    const std::string key = word.substr(begin, equals - begin);
    for (const ForeignTable& table : foreign_tables())
      if (const auto at = table.words.find(key); at != table.words.end()) {
        const Json& entry = at->contains("as") ? table.flags.at(at->at("as").get<std::string>()) : *at;
        flags_.give(key, entry, word.substr(equals + 1), ours);
        return true;
      }
    if (begin > 0) ours.push_back(word.substr(begin));
    return begin > 0;
  }

  // Variables of the environment that scripts read. Words of the line win.
  void take_variables(std::vector<std::string>& ours) {
    for (const ForeignTable& table : foreign_tables())
      for (const auto& [variable, entry] : table.variables.items()) {
        const char* const value = std::getenv(variable.c_str());
        if (value == nullptr || *value == '\0' || !is_about_training()) continue;
        const Json& unless = entry["unless"];
        const auto says = [&](const std::string& word) {
          return std::any_of(unless.begin(), unless.end(), [&](const Json& own) {
            const auto text = own.get<std::string>();
            return word == text || word.starts_with(text + "=");
          });
        };
        if (std::any_of(ours.begin(), ours.end(), says)) continue;
        const auto key = entry["sets"].get<std::string>();
        const std::string word = key + "=" + entry.value("values", Json::object()).value(std::string(value), value);
        ours.push_back(word);
        line_.words.push_back(word);  // other hosts may not have the variable
        line_.unused.push_back(variable + "=" + plain_text(value, kShownValue) + " of the environment gives " + word +
                               "; unset it if that is not meant");
      }
  }
  [[nodiscard]] bool is_about_training() const {
    constexpr std::string_view kReading[] = {"train", "plan", "compare", "tune", "smoke", "doctor"};
    const bool is_word = !command_.empty() && command_[0] != '-' && command_.find('=') == std::string::npos;
    return !is_word || is_command(command_) ||
           std::find(std::begin(kReading), std::end(kReading), command_) != std::end(kReading);
  }

  // A switch may have a truth value, after "=" or as the next word. Error: it is none.
  bool is_on() {
    const std::string word = words_[at_];
    const size_t equals = word.find('=');
    if (equals == std::string::npos && !value_follows()) return true;
    const std::string text = equals == std::string::npos ? words_[++at_] : word.substr(equals + 1);
    if (const std::optional<bool> truth = truth_of(text)) return *truth;
    ddh::fail(DDH_INVALID_ARGUMENT, word.substr(0, equals), " '", plain_text(text, kShownValue),
              "' is neither true nor false; give one of them");
  }
  // Whether the word behind a switch is its value. Some commands take a file or a name of their own there.
  [[nodiscard]] bool value_follows() const {
    if (at_ + 1 >= words_.size()) return false;
    const std::string& next = words_[at_ + 1];
    if (truth_of(next)) return true;
    return is_about_training() && !next.empty() && next[0] != '-' && next[0] != '~' &&
           next.find('=') == std::string::npos && !next.ends_with(".py");
  }

  // A long option with one dash is no cluster of short ones.
  static std::string with_two_dashes(const std::string& word) {
    const bool is_long = word.size() > 2 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])) != 0;
    return is_long ? "-" + word : word;
  }

  void refuse_script() const {
    const std::string& word = words_[at_];
    if (word.ends_with(".py") && word[0] != '-' && word.find('=') == std::string::npos && is_positional())
      ddh::fail(DDH_INVALID_ARGUMENT, "'", plain_text(word, kShownValue),
                "' is a script, and this program trains its own models; leave it out and choose a model with --model");
    if (word == "-m" || word == "--module")
      ddh::fail(DDH_INVALID_ARGUMENT, word,
                " names a module of a script, and this program trains its own models; leave ",
                "it out and choose a model with --model (to run several configurations: `ddhost compare`)");
  }

  void take_file(const ForeignTable& table, bool is_needed) {
    std::error_code ec;
    const bool has_value = words_[at_].find('=') != std::string::npos;
    const std::string next = at_ + 1 < words_.size() ? words_[at_ + 1] : "";
    const bool is_named = next.ends_with(".json") && next[0] != '-' && next.find('=') == std::string::npos;
    const bool follows = is_named || fs::is_regular_file(next, ec);
    if (!is_needed && !has_value && !follows) return;
    line_.foreign.push_back({value(), table.format, ""});
  }

  std::vector<std::string>& words_;
  CommandLine& line_;
  const std::vector<std::string> switches_;
  size_t at_ = 0;
  std::string compat_format_, command_;
  ForeignFlags flags_{false};
};

// Whether no word can be another program's: then its tables, which take most of a short command's time, are not needed.
bool has_own_words_alone(const std::vector<std::string>& words) {
  constexpr std::array kAlone = {"-h", "--help", "help", "--version", "list"};
  if (words.empty() || std::find(kAlone.begin(), kAlone.end(), words[0]) == kAlone.end()) return false;
  const bool lists_kind =
      words.size() == 2 && words[0] == "list" && !words[1].starts_with('-') && words[1].find('=') == std::string::npos;
  return words.size() == 1 || lists_kind;
}

}  // namespace

void take_foreign_words(std::vector<std::string>& words, CommandLine& line, const CLI::App& app) {
  if (!has_own_words_alone(words)) ForeignWords(words, line, app).take();
}

}  // namespace ddhost
