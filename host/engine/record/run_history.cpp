// SPDX-License-Identifier: Apache-2.0
#include "engine/record/run_history.hpp"

#include <array>
#include <ctime>

#include "base/durable.hpp"
#include "base/json.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr size_t kMostStarts = 100;

// An empty history where there is no file, or one that can't be read.
Json read_history(const fs::path& file) {
  Json none = {{"starts", Json::array()}};
  try {
    std::error_code ec;
    if (!fs::is_regular_file(file, ec)) return none;
    Json read = read_json(read_whole(file));
    if (read.is_object() && read.contains("starts") && read["starts"].is_array()) return read;
  } catch (const std::exception&) {
    // cut short or damaged: the run goes on without its history
  }
  return none;
}

void write_history(const fs::path& file, const Json& history) { replace_durably(file, json_document(history)); }

}  // namespace

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

void note_start(const fs::path& run_dir, const std::string& facts) {
  const fs::path file = run_dir / kRunHistory;
  Json history = read_history(file);
  Json& starts = history["starts"];
  starts.push_back(Json::parse(facts));
  if (starts.size() > kMostStarts)
    starts.erase(starts.begin(), starts.end() - static_cast<std::ptrdiff_t>(kMostStarts));
  write_history(file, history);
}

bool note_end(const fs::path& run_dir, int launcher, int exit_code, const std::string& sentence,
              const std::string& ranks) {
  const fs::path file = run_dir / kRunHistory;
  drop_part_of(file);  // a start that has nothing left to train does not write it
  Json history = read_history(file);
  if (history["starts"].empty()) return false;
  Json& last = history["starts"].back();
  if (!last.is_object() || !last.contains("launcher") || last.contains("ended")) return false;
  if (launcher != 0 && last["launcher"] != launcher) return false;
  last["ended"] = time_text();
  last["exit_code"] = exit_code;
  if (!sentence.empty()) last["sentence"] = plain_text(sentence);
  if (!ranks.empty()) last["ranks"] = read_json(ranks);
  write_history(file, history);
  return true;
}

}  // namespace ddhost
