// SPDX-License-Identifier: Apache-2.0
//
// cli/words/foreign_flags.hpp: what a table's entry makes of a word of another program. docs/foreign-files.md explains the
// entries.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "cli/words/command_line.hpp"

namespace ddhost {

class ForeignFlags {
 public:
  // `has_file`: a file of another program is given too.
  explicit ForeignFlags(bool has_file) : has_file_(has_file) {}

  // Adds words of ours for `word` with this value. Error: it is refused.
  void give(const std::string& word, const Json& entry, const std::string& value, std::vector<std::string>& ours);
  // The same for a switch that is on.
  void turn_on(const std::string& word, const Json& entry, std::vector<std::string>& ours);
  // The same for a switch that is off.
  void turn_off(const std::string& word, const Json& entry);
  // A list of words, each by its own entry: "--strategies a b,c".
  static std::vector<std::string> each(const Json& entry, const std::vector<std::string>& values);
  // Adds what several words say together, and what depends on other words. Error: one that is needed is missing.
  void finish(std::vector<std::string>& ours);

  // Sentences about words without effect, each once.
  [[nodiscard]] const std::vector<std::string>& unused() const { return unused_; }
  [[nodiscard]] const std::vector<DeniedValue>& denied() const { return denied_; }
  // The flag that was given for a word of ours: "--num_gpus" for "--nproc", "--learning_rate" for "optimizer.lr=1".
  [[nodiscard]] const std::map<std::string, std::string>& given() const { return given_; }

 private:
  struct Share {  // of a value of ours that another one multiplies
    std::string word, of, to;
    double share;
    bool is_number_needed;  // the option of ours takes no part itself
  };
  void add_items(const Json& items);  // to lists of ours
  void give_words(const std::string& word, const Json& entry, const std::string& value, std::vector<std::string>& ours);
  void take_share(const std::string& word, const Json& entry, const std::string& to, const std::string& value,
                  std::vector<std::string>& ours);
  void finish(const Share& share, std::vector<std::string>& ours);
  void note(const std::string& word, const Json& entry);
  void collect(const std::string& word, const Json& entry, const std::string& value);

  bool has_file_;
  std::map<std::string, std::map<size_t, Json>> collected_;  // by our key and place
  std::map<std::string, Json> lists_;                        // of ours, by key
  std::map<std::string, Json> otherwise_;                    // what a list of ours has without a word for it
  std::vector<Share> shares_;
  std::map<std::string, std::pair<std::string, Json>> chosen_;  // of words of which one may be on: it, and what it adds
  std::vector<DeniedValue> denied_;
  std::map<std::string, std::string> given_;
  std::vector<std::string> unused_;
};

}  // namespace ddhost
