// SPDX-License-Identifier: Apache-2.0
//
// cli/tune.cpp: `ddhost tune`: for each strategy the largest micro-batch that fits, by `ddhost plan`, with the number of
// samples of a step unchanged; then a comparison of them.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ostream>

#include "base/durable.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/measured_runs.hpp"
#include "ddh/sdk/memory/free_memory.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/text.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// The JSON that a command of this program prints.
Json json_of_child(const std::vector<std::string>& words, const fs::path& folder) {
  const fs::path out = folder / "asked.json", err = folder / "asked.txt";
  const ChildEnd end = run_child(words, out, err);
  if (end.code != 0)
    ddh::fail(DDH_FAILED_PRECONDITION, end.sentence.empty() ? "a child failed; start again" : end.sentence);
  return read_json(read_whole(out));
}

std::vector<std::string> with_model(const CommandLine& line, const char* command) {
  std::vector<std::string> words = {command};
  const std::vector<std::string> options = words_of_options(line);
  words.insert(words.end(), options.begin(), options.end());
  if (!line.compare.models.empty()) words.insert(words.end(), {"--model", line.compare.models.front()});
  return words;
}

// A folder for what children print, until the command ends.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "ddhost-tune-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      ddh::fail(DDH_PERMISSION_DENIED, "can't make a folder below '", fs::temp_directory_path().string(),
                "': ", std::strerror(errno), "; set TMPDIR to a folder that this user may write to");
    folder_ = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ec;
    fs::remove_all(folder_, ec);
  }
  [[nodiscard]] const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
};

void print_tuned(const Json& json, std::ostream& out) { out << json_document(json); }

// Samples of a rank's step, and how they are cut.
struct Batch {
  int64_t micro_batch = 1, accumulated = 1, ranks = 1;
  [[nodiscard]] std::vector<std::string> options(int64_t micro) const {
    return {ddh::str("data.micro_batch=", micro),
            ddh::str("train.grad_accum_steps=", micro_batch * accumulated / micro)};
  }
};

Batch batch_of(const CommandLine& line, const fs::path& folder) {
  std::vector<std::string> words = with_model(line, "train");
  words.emplace_back("--dry-run");
  const Json config = json_of_child(words, folder);
  const auto number = [&](const char* section, const char* key) {
    const Json value = config.at(section).value(key, Json());
    if (!value.is_number_integer())
      ddh::fail(DDH_INVALID_ARGUMENT, section, ".", key, " = ", shown(value), ", and tune changes one number only; ",
                "give one number for all programs");
    return value.get<int64_t>();
  };
  return {number("data", "micro_batch"), number("train", "grad_accum_steps"), number("run", "nproc")};
}

// For each strategy the largest micro-batch whose plan fits, the smallest that does not left out.
std::vector<ComparedCase> largest_that_fit(const CommandLine& line, const Batch& batch, uint64_t memory,
                                           const fs::path& folder) {
  std::vector<ComparedCase> out;
  const std::string model = line.compare.models.empty() ? "" : line.compare.models.front();
  const auto is_wanted = [&](const std::string& strategy) {
    const std::vector<std::string>& wanted = line.compare.strategies;
    const bool is_known =
        std::any_of(out.begin(), out.end(), [&](const ComparedCase& one) { return one.strategy == strategy; });
    return !is_known && (wanted.empty() || std::find(wanted.begin(), wanted.end(), strategy) != wanted.end());
  };
  const int64_t all = batch.micro_batch * batch.accumulated;
  for (int64_t micro = all; micro >= 1 && StopSignals::seen() == 0; --micro) {
    if (all % micro != 0) continue;
    std::vector<std::string> words = with_model(line, "plan");
    words.insert(words.end(), {"--all-strategies", "--json", "--memory", ddh::str(memory, "B")});
    for (const std::string& option : batch.options(micro)) words.push_back(option);
    const Json plans = json_of_child(words, folder).value("plans", Json::array());
    if (micro == all) {
      std::vector<std::string> names;
      for (const Json& plan : plans) names.push_back(plan.value("strategy", std::string()));
      require_known("strategy", line.compare.strategies, names);
    }
    bool has_more = false;
    for (const Json& plan : plans) {
      const std::string strategy = plan.value("strategy", std::string());
      if (!is_wanted(strategy)) continue;
      if (plan.value("fits", false))
        out.push_back({model, "", strategy, batch.options(micro)});
      else
        has_more = has_more || !plan.contains("problem");
    }
    if (!has_more) break;
  }
  return out;
}

}  // namespace

int tune_run(const CommandLine& given, std::ostream& out) {
  CommandLine line = given;
  require_own_folder(line.compare.out);
  const StopSignals signals;
  const Scratch scratch;
  const fs::path& asked = scratch.folder();
  const Batch batch = batch_of(line, asked);
  const uint64_t memory = line.compare.memory_bytes > 0
                              ? line.compare.memory_bytes
                              : ddh::free_memory().bytes / static_cast<uint64_t>(std::max<int64_t>(batch.ranks, 1));
  const std::vector<ComparedCase> cases = largest_that_fit(line, batch, memory, asked);
  if (cases.empty())
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "no strategy fits into ", bytes_text(memory), " per rank at ",
              batch.micro_batch * batch.accumulated, " samples per rank and step; give more --memory, or more ranks");
  choose_folder(line, cases);
  const fs::path folder = line.compare.out;
  MeasuredRuns runs(line, cases);
  const int code = runs.measure();
  line.compare.json ? runs.write_files() : runs.write_tables(out);
  const Measured* best = nullptr;
  for (const Measured& one : runs.cases())
    if (one.is_there() && (best == nullptr || one.speed() > best->speed())) best = &one;
  if (code != 0 || best == nullptr) {
    if (line.compare.json) print_tuned({{"fastest", Json()}, {"cases", comparison_json(runs.cases())}}, out);
    return code != 0 ? code : 1;
  }
  std::vector<std::string> words = with_model(line, "train");
  words.insert(words.end(), {"--strategy", best->of.strategy});
  words.insert(words.end(), best->of.options.begin(), best->of.options.end());
  std::string shown_words = "ddhost";
  for (const std::string& word : words) shown_words += " " + one_line(word);
  words.emplace_back("--dry-run");
  Json config = json_of_child(words, asked);
  for (const char* key : {"name", "dir"}) config["run"].erase(key);
  replace_durably(fs::absolute(folder) / "tuned.json", json_document(config));
  if (line.compare.json) {
    print_tuned({{"fastest", best->of.name()},
                 {"options", best->of.options},
                 {"memory_bytes_per_rank", memory},
                 {"cases", comparison_json(runs.cases())},
                 {"config", config}},
                out);
    return 0;
  }
  std::string as_fast;
  for (const Measured& one : runs.cases())
    if (&one != best && one.is_there() && is_as_fast(one, *best))
      as_fast += (as_fast.empty() ? "" : ", ") + one_line(one.of.strategy);
  out << "the fastest within " << bytes_text(memory) << " per rank at "
      << batch.micro_batch * batch.accumulated * batch.ranks << " samples a step: " << one_line(best->of.name())
      << (as_fast.empty() ? "" : "; as fast, within the spread: " + as_fast) << "\n  " << shown_words
      << "\n  ddhost --config " << one_line((folder / "tuned.json").string())
      << "\n(another micro-batch gives other bits)\n";
  return 0;
}

}  // namespace ddhost
