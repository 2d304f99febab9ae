// SPDX-License-Identifier: Apache-2.0
//
// config/words.hpp: words of other programs for commands, options and values, for hints (`words` in the tables of names), and
// what options and plugins cost (`costs`). Capital letters and the marks between words make no difference: "--Learning-Rate"
// is "learning_rate".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"

namespace ddhost {

// What to write instead; "": the word is not known.
std::string our_command(std::string_view word);                           // "eval" for "evaluate"
std::string our_option(std::string_view name, const std::string& value);  // "optimizer.lr=0.1"
// The end of a sentence, "here it is optimizer.lr=0.1", or why there is no such option and what to do; "": not known.
std::string hint_of_option(std::string_view name, const std::string& value);
std::string nearest_option_word(std::string_view name);                 // "epochs" for "epochz"; "": none is near
std::string our_value(const std::string& key, std::string_view value);  // "strategy.plugin=zero2" for "ZeRO-2"
std::string nearest_value_word(const std::string& key,
                               std::string_view value);  // "medium" for "medum"; "": none is near
// The value of `key` among `legal` that such a word stands for: a word may stand for "S or small"; "": for none.
std::string legal_value(const std::string& key, std::string_view word, const std::vector<std::string>& legal);
// The other direction: words of other programs for a key, "learning_rate"; for a value of a key, "deepspeed_stage_2".
std::vector<std::string> words_of_option(const std::string& key);
std::vector<std::string> words_of_value(const std::string& key, const std::string& value);

struct Cost {
  std::string bytes, time;  // "": not known
  std::string example;  // a value of an option, where none can be made from its type; "none": no example; "": not known
  std::string with;     // words that an example needs, as a shell takes them: "--device cuda"
  std::string smoke;    // the value with which a smoke test is short, and trains the same parameters; "": there is none
};
// `kind`: "strategy", "optimizer", or "option" with a key as the name.
Cost cost_of(const std::string& kind, const std::string& name);

// Error: `words` or `costs` of a table has another form.
void check_words(const std::string& file, const Json& table);

}  // namespace ddhost
