// SPDX-License-Identifier: Apache-2.0
//
// tests/cli/checkpoint_runs.hpp: short runs that save checkpoints, each in a folder of its own, and what they leave behind.
#pragma once

#include <set>

#include "checkpoint/manifest.hpp"
#include "fixtures/harness/ddhost_process.hpp"

namespace ddhost::test {

namespace fs = std::filesystem;
// Replaces manifest.json of a checkpoint, and the marker that holds its checksum.
inline void write_manifest(const std::filesystem::path& checkpoint, const std::string& text) {
  std::ofstream(checkpoint / "manifest.json", std::ios::binary) << text;
  std::ofstream(checkpoint / "COMPLETE", std::ios::binary)
      << "ddhost checkpoint 1\nmanifest " << text.size() << " " << hex(sum_of(text.data(), text.size())) << "\n";
}

// As if the run had been stopped before the evaluation that follows the step of the checkpoint.
inline void make_evaluation_pending(const std::filesystem::path& checkpoint) {
  nlohmann::json manifest = nlohmann::json::parse(read_text((checkpoint / "manifest.json").string()));
  manifest.at("progress").at("evaluation_pending") = true;
  write_manifest(checkpoint, manifest.dump(2));
}

class Runs {
 public:
  Said train(const std::string& name, const Words& more = {}) const {
    Words words = {"--model", toy_model(), "run.quiet=true", "optimizer.lr=0.01", "train.steps=6", "--nproc", "2"};
    words.push_back("run.dir=" + dir(name));
    words.insert(words.end(), more.begin(), more.end());
    return call_ddhost(words);
  }
  [[nodiscard]] std::string dir(const std::string& name) const { return folder_.file(name); }
  [[nodiscard]] std::string step(const std::string& name, int step) const {
    return dir(name) + "/checkpoints/step-" + std::to_string(step);
  }
  [[nodiscard]] std::set<std::string> saved(const std::string& name) const {
    std::set<std::string> out;
    if (!fs::exists(dir(name) + "/checkpoints")) return out;
    for (const auto& entry : fs::directory_iterator(dir(name) + "/checkpoints"))
      out.insert(entry.path().filename().string());
    return out;
  }

 private:
  TempFolder folder_;
};

inline void flip_bit(const std::string& file, uint64_t at) {
  std::fstream in_out(file, std::ios::in | std::ios::out | std::ios::binary);
  in_out.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(in_out.get() ^ 4);
  in_out.seekp(static_cast<std::streamoff>(at));
  in_out.put(byte);
}

inline std::vector<int> steps_in(const std::string& text) {
  std::vector<int> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    if (row.contains("loss")) out.push_back(row.at("step"));
  }
  return out;
}

}  // namespace ddhost::test
