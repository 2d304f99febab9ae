// SPDX-License-Identifier: Apache-2.0
//
// Swapping plugins by flags: every pair of strategy, optimizer, schedule and model starts, or is refused with a reason that
// is true: with the cure that it names the run starts. `ddhost list` names the plugins. The long test reads the
// configuration of every combination.
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <set>

#include "fixtures/harness/listed.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;

namespace {

constexpr size_t kKinds = 4;
constexpr std::array<const char*, kKinds> kNames = {"strategy", "optimizer", "schedule", "model"};
using Row = std::array<size_t, kKinds>;                                        // an index of a plugin for each kind
using Pair = std::pair<std::pair<size_t, size_t>, std::pair<size_t, size_t>>;  // kind and plugin, twice

using Plugins = std::array<Words, kKinds>;
Plugins all_plugins() {
  constexpr std::array<const char*, kKinds> known = {"ddp", "adamw", "cosine", "gpt"};
  Plugins plugins;
  for (size_t k = 0; k < kKinds; ++k) plugins[k] = listed_plugins(kNames[k], known[k]);
  for (const Words& of_kind : plugins) REQUIRE(of_kind.size() > 1);
  return plugins;
}

Pair pair_of(const Row& row, size_t a, size_t b) { return {{a, row[a]}, {b, row[b]}}; }

std::set<Pair> all_pairs(const Plugins& plugins) {
  std::set<Pair> pairs;
  for (size_t a = 0; a < kKinds; ++a)
    for (size_t b = a + 1; b < kKinds; ++b)
      for (size_t i = 0; i < plugins[a].size(); ++i)
        for (size_t j = 0; j < plugins[b].size(); ++j) pairs.insert({{a, i}, {b, j}});
  return pairs;
}

// Each row begins with the first pair that is missing; the other kinds take the plugin that adds most pairs.
std::vector<Row> covering_rows(const Plugins& plugins) {
  std::vector<Row> rows;
  std::set<Pair> missing = all_pairs(plugins);
  while (!missing.empty()) {
    const auto [first, second] = *missing.begin();
    Row row{};
    std::vector<size_t> set = {first.first, second.first};
    row[first.first] = first.second;
    row[second.first] = second.second;
    for (size_t kind = 0; kind < kKinds; ++kind) {
      if (std::find(set.begin(), set.end(), kind) != set.end()) continue;
      size_t most = 0, best = 0;
      for (size_t i = 0; i < plugins[kind].size(); ++i) {
        row[kind] = i;
        const auto gains = static_cast<size_t>(std::count_if(set.begin(), set.end(), [&](size_t other) {
          return missing.contains(pair_of(row, std::min(kind, other), std::max(kind, other)));
        }));
        if (gains > most) most = gains, best = i;
      }
      row[kind] = best;
      set.push_back(kind);
    }
    for (size_t a = 0; a < kKinds; ++a)
      for (size_t b = a + 1; b < kKinds; ++b) missing.erase(pair_of(row, a, b));
    rows.push_back(row);
  }
  return rows;
}

Words flags_of(const Plugins& plugins, const Row& row) {
  Words words;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    words.push_back(std::string("--") + kNames[kind]);
    words.push_back(plugins[kind][row[kind]]);
  }
  return words;
}

// The small configuration of the row's model, whose other plugins the flags replace.
Words config_of(const Plugins& plugins, const Row& row) {
  const std::string config = std::string(DDHOST_SOURCE_DIR) + "/configs/" + plugins[3][row[3]] + "_tiny.json";
  return std::filesystem::exists(config) ? Words{"--config", config} : Words{};
}

// Reasons that are true for a plugin's own sake: a part of the sentence, and the option with which the run starts. It ends
// in '=' if the sentence gives its value.
struct Reason {
  std::string part, cure;
};
const std::vector<Reason> kReasons = {
    {"schedule.min_lr has no default; give it", "schedule.min_lr=1e-4"},
    {"needs a single loss, but this run trains", "train.programs="},
    {"name more sections in train.optimizers, such as", R"(train.optimizers=["optimizer", "optimizer_kg"])"},
};
std::string cure_of(const Reason& reason, const std::string& err) {
  if (!reason.cure.ends_with('=')) return reason.cure;
  const size_t at = err.find(reason.cure);
  return at == std::string::npos ? "" : err.substr(at, err.find(']', at) + 1 - at);
}

struct Ended {
  int code;
  std::string err;
};
Ended run(const Words& words) {
  const TempFolder folder;
  Process process(joined(words, {"run.dir=" + folder.file("run")}));
  const int code = process.wait(std::chrono::seconds(60));
  return {code, process.err()};
}

// Returns whether the run was refused. A plugin may have one reason, and another one a second.
bool check_starts_or_true_reason(Words words) {
  for (int refusals = 0;; ++refusals) {
    const Ended ended = run(words);
    std::string command = "ddhost";
    for (const std::string& word : words) command += " '" + word + "'";
    INFO(command << "\nexit " << ended.code << "\n" << ended.err);
    CHECK((ended.code >= 0 && ended.code < 128));
    if (ended.code == 0) return refusals > 0;
    const auto reason = std::find_if(kReasons.begin(), kReasons.end(), [&](const Reason& known) {
      return ended.err.find(known.part) != std::string::npos;
    });
    CHECK(reason != kReasons.end());
    CHECK(refusals < 2);  // else no cure helps
    if (reason == kReasons.end() || refusals >= 2) return true;
    words.push_back(cure_of(*reason, ended.err));
  }
}

const Words kShort = {"--nproc",
                      "2",
                      "train.steps=2",
                      "train.eval_every=0",
                      "run.quiet=true",
                      "train.eval_every_epochs=0",
                      "run.sample_tokens=0",
                      "data.micro_batch=2"};

}  // namespace

TEST_CASE("every pair of strategy, optimizer, schedule and model starts, or is refused for a true reason", "[cli]") {
  const Plugins plugins = all_plugins();
  const std::vector<Row> rows = covering_rows(plugins);
  size_t refused = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const Words config = i % 2 == 0 ? config_of(plugins, row) : Words{};  // the others by flags alone
    refused += check_starts_or_true_reason(joined(config, joined(flags_of(plugins, row), kShort))) ? 1 : 0;
  }
  CHECK(refused < rows.size() / 2);
  WARN(rows.size() << " runs, of which " << refused << " were refused and cured");
}

// The pairs above have these too; half of them with the model's configuration.
TEST_CASE("every optimizer and every schedule replaces the one of each shipped small configuration", "[.all]") {
  const Plugins plugins = all_plugins();
  for (const size_t kind : {1U, 2U})
    for (const std::string& plugin : plugins[kind])
      for (const std::string& model : plugins[3]) {
        const std::string config = std::string(DDHOST_SOURCE_DIR) + "/configs/" + model + "_tiny.json";
        check_starts_or_true_reason({"--config", config, std::string("--") + kNames[kind], plugin, "--dry-run"});
      }
}

TEST_CASE("the configuration of every combination is accepted, or refused for a true reason", "[.all]") {
  const Plugins plugins = all_plugins();
  Row row{};
  for (row[0] = 0; row[0] < plugins[0].size(); ++row[0])
    for (row[1] = 0; row[1] < plugins[1].size(); ++row[1])
      for (row[2] = 0; row[2] < plugins[2].size(); ++row[2])
        for (row[3] = 0; row[3] < plugins[3].size(); ++row[3])
          check_starts_or_true_reason(joined(flags_of(plugins, row), {"--dry-run"}));
}
