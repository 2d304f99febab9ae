// SPDX-License-Identifier: Apache-2.0
//
// cli/foreign_page.cpp: `ddhost convert --keys FORMAT`: every key of another program's file as a page, such as
// docs/from-deepspeed.md.
#include <algorithm>
#include <ostream>
#include <sstream>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "config/foreign/table.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr size_t kPageWidth = 100;

void print_wrapped(std::ostream& out, const std::string& first, const std::string& indent, const std::string& text) {
  std::istringstream words(text);
  std::string line = first;
  bool is_begun = false;
  for (std::string word; words >> word; is_begun = true) {
    if (is_begun && line.size() + 1 + word.size() > kPageWidth) {
      out << line << '\n';
      line = indent + word;
    } else {
      line += (is_begun ? " " : "") + word;
    }
  }
  out << line << '\n';
}

std::string marked(const std::string& text) { return "`" + text + "`"; }

// Marks of Markdown in a sentence of a table.
std::string plain(const std::string& text) {
  std::string out;
  bool is_code = false;
  for (const char c : text) {
    if (c == '`') is_code = !is_code;
    if (!is_code && std::string_view("*<[]_").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string value_text(const Json& value) {
  if (value.is_object() && value.contains("not")) return "not " + value_text(value["not"]);
  if (value.is_object() && value.contains("above")) return "above " + value["above"].dump();
  if (value.is_object() && value.contains("on"))
    return "an object with " + marked(value["on"].get<std::string>() + ": true") + " at each level";
  if (value.is_object() && value.contains("holds")) {
    const Json& entry = value["holds"];
    return "an object with " + marked(entry.begin().key() + ": " + entry.begin()->dump());
  }
  if (!value.is_array() || value.empty()) return marked(value.dump());
  std::string list;
  for (const Json& one : value) list += (list.empty() ? "" : " or ") + value_text(one);
  return list;
}

std::string condition_text(const ForeignRule& rule) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " and ") + part; };
  if (!rule.before.empty()) add("before " + rule.before);
  if (rule.only_given) add("given");
  if (rule.is) add(value_text(*rule.is));
  for (const auto& [key, wanted] : rule.when.items()) add(marked(key) + " is " + value_text(wanted));
  return text;
}

std::string result_text(const ForeignRule& rule) {
  if (!rule.refuse.empty())
    return "refused: " + plain(rule.refuse.starts_with("= ") ? rule.refuse.substr(2) : rule.refuse);
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (!rule.to.empty())
    add(marked(rule.to) + (rule.factor == 1 ? "" : " = " + number_text(rule.factor) + " x the value"));
  for (const auto& [key, value] : rule.gives.items())
    add(marked(key + "=" + (value.is_string() ? value.get<std::string>() : value.dump())));
  for (const auto& [key, value] : rule.append.items())
    add("an entry " + marked(value.get<std::string>()) + " in " + marked(key));
  if (rule.part_of.is_array())
    for (const Json& key : rule.part_of) add("part of " + marked(key.get<std::string>()));
  if (!rule.hand_to.empty())
    add("as " + marked(rule.hand_to.substr(rule.hand_to.find(':') + 1)) + " of " +
        rule.hand_to.substr(0, rule.hand_to.find(':')));
  if (!rule.file_of.empty()) add("a file of " + rule.file_of + ", which is read");
  if (!rule.no_effect.empty()) add("no effect: " + plain(rule.no_effect));
  return text;
}

std::string facts_of(const ForeignKey& key, const std::string& version) {
  std::string types;
  for (const std::string& type : key.types) types += (types.empty() ? "" : " or ") + (type == "open" ? "object" : type);
  const bool changes = key.preset.is_array() && !key.preset.empty() && key.preset.front().is_object();
  const Json preset = key.preset_in(version);
  std::string text = types + (preset.is_null() ? "" : "; default " + marked(preset.dump()));
  if (changes)
    for (const Json& entry : key.preset)
      if (entry.contains("before"))
        text += ", before " + entry["before"].get<std::string>() + " " + marked(entry["value"].dump());
  if (!key.removed.empty()) text += "; removed in " + key.removed;
  for (const std::string& field : key.fields)
    text += (&field == &key.fields.front() ? "; with " : ", ") + marked(field);
  return text;
}

void print_key(const ForeignKey& key, const std::string& version, std::ostream& out) {
  std::string also;
  for (const std::string& name : key.also) also += (also.empty() ? " Also " : ", ") + marked(name);
  if (!also.empty()) also += '.';
  if (!key.stands_for.empty()) {
    print_wrapped(out, "- ", "  ", marked(key.name) + ": another word for " + marked(key.stands_for) + "." + also);
    return;
  }
  const std::string head = marked(key.name) + " (" + facts_of(key, version) + ")";
  if (key.rules.size() == 1 && condition_text(key.rules[0]).empty()) {
    print_wrapped(out, "- ", "  ", head + ": " + result_text(key.rules[0]) + "." + also);
    return;
  }
  print_wrapped(out, "- ", "  ", head + ":" + also);
  for (const ForeignRule& rule : key.rules) {
    const std::string condition = condition_text(rule);
    print_wrapped(out, "  - ", "    ", (condition.empty() ? "else" : condition) + ": " + result_text(rule) + ".");
  }
}

std::string words_text(const Json& words) {
  std::string text;
  for (const Json& word : words) text += (text.empty() ? "" : " ") + marked(word.get<std::string>());
  return text.empty() ? "nothing" : text;
}

// {"key": [...]} as a word of ours.
std::string key_and_list(const Json& own) { return own.begin().key() + "=" + own.begin()->dump(); }

// What the entry of a word says.
std::string entry_text(const Json& entry) {
  if (entry.contains("as")) return "takes the words of the flag " + marked(entry["as"].get<std::string>());
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (entry.contains("file")) add("the file");
  if (entry.contains("is")) add(marked(entry["is"].get<std::string>()));
  const Json beside = entry.value("beside", Json::object());
  for (const auto& [other, fields] : beside.items())
    if (fields.contains("is")) add("beside " + marked(other) + " " + marked(fields["is"].get<std::string>()));
  for (const auto& [other, fields] : beside.items())
    if (fields.contains("no_effect") || fields.contains("by_value")) {
      Json given = Json::object();
      given.merge_patch(fields);  // without those that are null
      add("beside " + marked(other) + " " + entry_text(given));
    }
  if (entry.contains("share_of"))
    add(marked(entry["sets"].get<std::string>()) + (entry.contains("or_number") ? ", below 1" : ",") +
        " this part of " + marked(entry["share_of"].get<std::string>()));
  else if (entry.contains("sets"))
    add(marked(entry["sets"].get<std::string>()));
  if (entry.contains("sets_beside_file")) add("beside a file " + marked(entry["sets_beside_file"].get<std::string>()));
  if (entry.contains("adds"))
    add(entry["adds"].is_object() ? marked(key_and_list(entry["adds"])) : words_text(entry["adds"]));
  if (entry.contains("collects"))
    add(ddh::str("item ", entry["collects"]["place"].get<int>() + 1, " of ",
                 marked(entry["collects"]["into"].get<std::string>())));
  for (const char* field : {"values", "each"}) {
    const Json ours = entry.value(field, Json::object());
    for (const auto& [given, own] : ours.items()) add(marked(given) + " means " + marked(own.get<std::string>()));
  }
  const Json by_value = entry.value("by_value", Json::object());
  for (const auto& [given, words] : by_value.items()) add(marked(given) + " gives " + words_text(words));
  const Json by_word = entry.value("by_word", Json::object()), without = entry.value("without", Json::object());
  for (const auto& [given, own] : by_word.items())
    add(marked(given) + " gives " + (own.is_array() ? words_text(own) : marked(key_and_list(own))));
  for (const auto& [missing, words] : without.items()) add("without " + marked(missing) + " " + words_text(words));
  const bool drops_alone = !beside.empty() && beside.begin()->contains("drops");
  if (entry.contains("drops"))
    add("nothing if it is " + value_text(entry["drops"]) +
        (drops_alone ? " and there is no " + marked(beside.begin().key()) : ""));
  const Json off = entry.value("off", Json::object()), refuses = entry.value("refuses", Json::object());
  if (off.contains("denies"))
    add("off, it is refused beside a file that says " + marked(off["denies"].get<std::string>()));
  if (off.contains("no_effect")) add("off, no effect: " + plain(off["no_effect"].get<std::string>()));
  for (const auto& [given, why] : refuses.items())
    add(marked(given) + " is refused: it " + plain(why.get<std::string>()));
  const char* const otherwise = text.empty() ? "" : "else ";
  if (entry.contains("keeps")) add("else as it is");
  if (entry.contains("no_effect")) add(otherwise + ("no effect: " + plain(entry["no_effect"].get<std::string>())));
  if (entry.contains("refuse")) add(otherwise + ("refused: it " + plain(entry["refuse"].get<std::string>())));
  if (entry.contains("unless")) add("not beside " + words_text(entry["unless"]));
  return text;
}

void print_words(const std::string& title, const Json& entries, std::ostream& out) {
  if (entries.empty()) return;
  out << "\n## " << title << "\n";
  for (const auto& [word, entry] : entries.items())
    print_wrapped(out, "- ", "  ", marked(word) + ": " + entry_text(entry) + ".");
}

void print_lines(const ForeignTable& table, std::ostream& out) {
  if (table.lines.empty()) return;
  out << "\n## Lines\n";
  print_wrapped(out, "", "",
                "Lines that people type, and below each the line that does the same here. The test " +
                    marked("cli_source_commands") + " runs them on tiny data.");
  out << "```sh\n";
  for (const Json& line : table.lines)
    out << "# " << line.at(0).get<std::string>() << "\n" << line.at(1).get<std::string>() << "\n";
  out << "```\n";
}

}  // namespace

int print_foreign_page(const std::string& format, std::ostream& out) {
  const ForeignTable* const table = foreign_table(format);
  if (table == nullptr) {
    std::string formats;
    for (const ForeignTable& known : foreign_tables()) formats += (formats.empty() ? "" : ", ") + known.format;
    ddh::fail(DDH_INVALID_ARGUMENT, "--keys '", plain_text(format, kShownValue), "' is no format; give one of ",
              formats);
  }
  const bool has_keys = !table->keys.empty();
  out << (has_keys ? "# Every key of a file of " : "# Every word of a line of ") << table->program << "\n";
  const std::string about_keys = " The parentheses after a key hold its type and the default of " + table->program +
                                 " " + table->newest + ". Of several meanings the first whose condition holds counts.";
  print_wrapped(out, "", "",
                marked("ddhost convert --keys " + format) + " prints this page from " +
                    marked("plugins/names/files/" + format + ".json") + ". Change the table, not this page; the test " +
                    marked("docs_foreign_keys") + " compares them. [foreign-files.md](foreign-files.md) says how " +
                    (has_keys ? "a file is given." + about_keys : std::string("words are taken.")));
  print_lines(*table, out);
  if (has_keys) out << (table->lines.empty() ? "\n" : "\n## Keys\n");
  for (const ForeignKey& key : table->keys) print_key(key, table->newest, out);
  print_words("Words of the command line", table->flags, out);
  print_words("Words with a value: key=value", table->words, out);
  print_words("Variables of the environment", table->variables, out);
  return 0;
}

}  // namespace ddhost
