// SPDX-License-Identifier: Apache-2.0
#include "plan/decisions.hpp"

#include "checkpoint/memory_folder.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/state/final_weights.hpp"
#include "plan/continued.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr const char* kKey = "launcher/decisions";

Json texts(const std::vector<fs::path>& paths) {
  Json out = Json::array();
  for (const fs::path& path : paths) out.push_back(path.string());
  return out;
}

// What the head settled after it had read its options, such as the newest checkpoint. An option's value may be an object.
void take_values(Config& config, const Json& values, const std::string& prefix) {
  for (const auto& [name, value] : values.items()) {
    const std::string key = prefix + name;
    const Config::Value* const mine = config.find(key);
    if (mine == nullptr && value.is_object()) take_values(config, value, key + ".");
    if (mine != nullptr && mine->value != value) config.set(key, value, "the head of the run");
  }
}

std::vector<fs::path> paths(const Json& texts) {
  std::vector<fs::path> out;
  for (const Json& text : texts) out.emplace_back(text.get<std::string>());
  return out;
}

}  // namespace

void publish_decisions(const PreparedRun& run, Kv& kv) {
  Json out = {{"run_dir", run.run_dir.string()},
              {"resume", texts(run.resume)},
              {"hidden", Json::array()},
              {"config", run.config.effective()}};
  if (run.memory_resume)
    out["memory"] = {{"first_run", run.memory_resume->first_run}, {"otherwise", run.memory_resume->otherwise}};
  if (run.final_weights != nullptr) out["hidden"] = texts(run.final_weights->hidden());
  kv.set(kKey, json_line(out));
}

Json await_decisions(Kv& kv, std::chrono::milliseconds timeout) { return read_json(kv.get(kKey, timeout)); }

std::vector<Override> overrides_of(const Json& decisions) {
  const char* const source = "the head of the run";
  return {{"run.dir", decisions.at("run_dir").get<std::string>(), source},
          {"checkpoint.memory_copies", decisions.at("config").at("checkpoint").at("memory_copies").dump(), source}};
}

void take_over(PreparedRun& run, const Json& decisions) {
  take_values(run.config, decisions.at("config"), "");
  if (run.work != Work::kTrain) return;
  std::error_code ec;
  if (!fs::is_directory(run.run_dir, ec))
    ddh::fail(DDH_NOT_FOUND, "run.dir '", run.run_dir.string(),
              "', which the head of the run has made, does not exist on ",
              "this host; put it into a folder that all hosts share by the same path");
  run.resume = paths(decisions.at("resume"));
  if (decisions.contains("memory"))
    run.memory_resume = memory_resume(run, decisions.at("memory").at("first_run").get<uint64_t>(),
                                      decisions.at("memory").at("otherwise").get<std::string>());
  else
    remove_memory_folder(run.run_dir);  // of a run that was here before
  const std::vector<fs::path> hidden = paths(decisions.at("hidden"));
  if (!hidden.empty())
    run.final_weights = std::make_shared<const FinalWeights>(run.config.text("train.save_final"), run.run_dir, hidden);
}

}  // namespace ddhost
