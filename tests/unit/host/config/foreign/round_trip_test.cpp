// SPDX-License-Identifier: Apache-2.0
//
// Files of other programs that are made at random are translated, written back, and translated again: nothing that has a
// counterpart here may change. DDHOST_ROUND_TRIPS says how many.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>

#include "config/foreign/reverse.hpp"
#include "config/foreign/translation.hpp"
#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

constexpr int64_t kRanks = 2;

Translation translated(const ForeignTable& table, const Json& root, const std::string& version) {
  const TempFolder folder;
  std::ofstream(folder.file("f")) << root.dump(1);  // JSON is YAML, too
  const auto none = [](const std::string&) -> std::optional<Json> { return std::nullopt; };
  return translate_file(table, folder.file("f"), {[] { return kRanks; }, none, version, none});
}

class Maker {
 public:
  Maker(const ForeignTable& table, uint64_t seed) : table_(table), random_(seed) {}

  // A file with a few keys of the table, each with a value that fits.
  Json make() {
    Json root = Json::object();
    const double share = real(0.02, 0.4);
    for (const ForeignKey& key : table_.keys) {
      if (real(0, 1) > share || !key.stands_for.empty()) continue;
      if (const Json value = value_of(key); !value.is_null()) put(root, key.name, value);
    }
    return root;
  }
  std::string version() { return table_.format == "deepspeed" ? pick<std::string>({"", "0.14.4", "0.18.2"}) : ""; }

 private:
  double real(double from, double to) { return std::uniform_real_distribution<double>(from, to)(random_); }
  int64_t whole(int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random_); }
  template <class T>
  T pick(const std::vector<T>& all) {
    return all[static_cast<size_t>(whole(0, static_cast<int64_t>(all.size()) - 1))];
  }

  Json value_of(const ForeignKey& key) {
    std::vector<Json> all;  // values that rules and conditions name
    for (const ForeignRule& rule : key.rules)
      if (rule.is && !rule.is->is_object())
        for (const Json& one : rule.is->is_array() ? *rule.is : Json::array({*rule.is})) all.push_back(one);
    if (key.words.is_array()) all.insert(all.end(), key.words.begin(), key.words.end());
    for (const std::string& type : key.types) {
      if (type == "boolean") all.insert(all.end(), {true, false});
      if (type == "integer") all.emplace_back(whole(std::max<int64_t>(0, least(key)), most(key)));
      if (type == "number") all.emplace_back(real(static_cast<double>(least(key)), static_cast<double>(most(key))));
      if (type == "array" && key.length == 2) all.push_back({real(0, 0.9), real(0.9, 0.99)});
    }
    return all.empty() ? Json() : pick(all);
  }
  static int64_t least(const ForeignKey& key) { return key.min.is_number() ? key.min.get<int64_t>() : 0; }
  static int64_t most(const ForeignKey& key) {
    return std::min<int64_t>(key.max.is_number() ? key.max.get<int64_t>() : 64, least(key) + 64);
  }
  static void put(Json& root, const std::string& name, const Json& value) {
    Json* node = &root;
    size_t begin = 0;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
      Json& below = (*node)[name.substr(begin, dot - begin)];
      if (!below.is_object()) below = Json::object();
      node = &below;
      begin = dot + 1;
    }
    (*node)[name.substr(begin)] = value;
  }

  const ForeignTable& table_;
  std::mt19937_64 random_;
};

std::vector<std::pair<std::string, Json>> values_of(const Translation& translation) {
  std::vector<std::pair<std::string, Json>> all;
  for (const Translation::Line& line : translation.lines) all.emplace_back(line.key, line.value);
  return all;
}

Json without(const Json& root, const std::vector<std::string>& paths) {
  Json out = root;
  for (const std::string& path : paths) {
    Json* node = &out;
    size_t begin = 0;
    for (size_t dot = path.find('.'); dot != std::string::npos && node->is_object(); dot = path.find('.', begin)) {
      if (!node->contains(path.substr(begin, dot - begin))) break;
      node = &(*node)[path.substr(begin, dot - begin)];
      begin = dot + 1;
    }
    if (node->is_object()) node->erase(path.substr(begin));
  }
  return out;
}

// The file without the keys that are refused, as a person would correct it; nullopt: it stays refused.
std::optional<Json> corrected(const ForeignTable& table, Json root, const std::string& version) {
  for (int i = 0; i < 20; ++i) {
    const Translation translation = translated(table, root, version);
    if (translation.refused.empty()) return root;
    std::vector<std::string> bad;
    for (const Translation::Refusal& refusal : translation.refused) bad.push_back(refusal.from.key);
    const Json next = without(root, bad);
    if (next == root) return std::nullopt;
    root = next;
  }
  return std::nullopt;
}

// The number of files that went there and back, and the keys of ours that another file can't say.
struct Result {
  int n_files = 0;
  std::set<std::string> left_out;
};

Result go_there_and_back(const std::string& format, const Json& base, int n) {
  const ForeignTable& table = *foreign_table(format);
  Result result;
  for (int i = 0; i < n; ++i) {
    Maker maker(table, static_cast<uint64_t>(i));
    Json root = maker.make();
    root.update(base);
    const std::string version = maker.version();
    const std::optional<Json> file = corrected(table, root, version);
    if (!file) continue;
    const auto ours = values_of(translated(table, *file, version));
    const Reversed back = reversed(table, version, ours);
    const Translation again = translated(table, back.root, version);
    INFO("seed " << i << ", version " << version << "\n" << file->dump(1) << "\nback:\n" << back.root.dump(1));
    for (const Translation::Refusal& refusal : again.refused) FAIL_CHECK(refusal.from.key << " " << refusal.sentence);
    const std::set<std::string> left_out(back.left_out.begin(), back.left_out.end());
    const auto values = values_of(again);
    for (const auto& [key, value] : ours) {
      if (left_out.contains(key)) continue;
      const auto at =
          std::find_if(values.begin(), values.end(), [&, own = key](const auto& one) { return one.first == own; });
      INFO(key << " = " << value.dump());
      REQUIRE(at != values.end());
      CHECK(at->second == value);
    }
    result.left_out.insert(left_out.begin(), left_out.end());
    ++result.n_files;
  }
  return result;
}

int round_trips() {
  const char* const text = std::getenv("DDHOST_ROUND_TRIPS");
  return text == nullptr ? 80 : std::atoi(text);
}

// Keys of ours that the way back leaves out, and names; no others may be.
void check_left_out(const Result& result, const std::set<std::string>& known) {
  for (const std::string& key : result.left_out) {
    INFO(key);
    CHECK(known.contains(key));
  }
}

}  // namespace

TEST_CASE("a DeepSpeed file that goes there and back says the same", "[foreign]") {
  const Result result = go_there_and_back("deepspeed", {{"train_micro_batch_size_per_gpu", 3}}, round_trips());
  CHECK(result.n_files > round_trips() / 2);
  // Monitors and their options have no way back.
  check_left_out(result, {"monitor.plugins", "monitor.wandb.project", "monitor.wandb.group", "monitor.wandb.entity",
                          "strategy.offload_optimizer.ratio"});
}

TEST_CASE("an Accelerate file that goes there and back says the same", "[foreign]") {
  for (const char* type : {"NO", "MULTI_CPU", "MULTI_GPU", "FSDP"}) {
    const Result result = go_there_and_back("accelerate", {{"distributed_type", type}}, round_trips() / 4);
    INFO(type);
    CHECK(result.n_files > round_trips() / 8);
    check_left_out(result, {"strategy.reshard_after_forward"});
  }
}
