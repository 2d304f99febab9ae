// SPDX-License-Identifier: Apache-2.0
//
// Real configuration files of public projects ($DDHOST_DATA/foreign_configs): every key and every default is accounted for,
// and most of the files give a training.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "config/foreign/table.hpp"
#include "config/foreign/text.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/golden_data.hpp"

using namespace ddhost::test;

namespace {

// Files of the folder with the extension, sorted; empty: the data is not there, and the test is skipped.
std::vector<std::filesystem::path> files_of(const std::string& program, const std::string& extension) {
  const auto index = find_data("foreign_configs/" + program + "/INDEX.md");
  std::vector<std::filesystem::path> files;
  if (!index) return files;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(*index).parent_path()))
    if (entry.path().extension() == extension) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

void add_leaves(const ddhost::Json& object, const std::string& path, std::vector<std::string>& leaves) {
  for (const auto& [name, value] : object.items()) {
    const std::string here = path.empty() ? name : path + "." + name;
    if (value.is_object())
      add_leaves(value, here, leaves);
    else
      leaves.push_back(here);
  }
}

// The keys that `convert --json` names, whatever became of them.
struct Named {
  std::set<std::string> given, all;
};
Named named_by(const ddhost::Json& converted) {
  Named named;
  for (const char* list : {"lines", "same", "no_effect", "refused"})
    for (const ddhost::Json& entry : converted.at(list)) {
      const std::string key = entry.at("from").at("key").get<std::string>();
      named.all.insert(key);
      if (entry["from"]["kind"] != "default") named.given.insert(key);
    }
  return named;
}

// Whether the key or an object around it is named.
bool is_named(const std::set<std::string>& keys, std::string key) {
  for (;;) {
    if (keys.contains(key)) return true;
    const size_t dot = key.rfind('.');
    if (dot == std::string::npos) return false;
    key.resize(dot);
  }
}

ddhost::Json converted(const std::filesystem::path& file) {
  Process process({"convert", "--json", file.string(), "--nproc", "2"});
  process.wait(std::chrono::seconds(30));
  INFO(file << "\n" << process.err());
  REQUIRE(!process.out().empty());
  return ddhost::Json::parse(process.out());
}

// By its own name, another one, or a word that stands for it.
bool is_named_by_any_name(const std::set<std::string>& named, const ddhost::ForeignKey& key,
                          const ddhost::ForeignTable& table) {
  const auto is_in = [&](const std::string& name) { return named.contains(name); };
  const auto is_one = [&](const ddhost::ForeignKey& one) {
    return is_in(one.name) || std::any_of(one.also.begin(), one.also.end(), is_in);
  };
  if (is_one(key)) return true;
  for (const auto& [other, section] : table.sections.items())
    if (const auto name = section.get<std::string>();
        key.name.starts_with(name + ".") && is_in(other + key.name.substr(name.size())))
      return true;
  return std::any_of(table.keys.begin(), table.keys.end(),
                     [&](const ddhost::ForeignKey& one) { return one.stands_for == key.name && is_one(one); });
}

void check_accounted(const std::filesystem::path& file, const ddhost::ForeignTable& table) {
  const std::string text = ddhost::read_foreign_file(file);
  std::vector<std::string> leaves;
  add_leaves((table.is_yaml ? ddhost::read_yaml(text) : ddhost::read_relaxed_json(text)).root, "", leaves);
  const Named named = named_by(converted(file));
  for (const std::string& leaf : leaves) {
    INFO(file << ": " << leaf);
    CHECK(is_named(named.given, leaf));
  }
  // A key without a condition always has a default, or one that the table says.
  for (const ddhost::ForeignKey& key : table.keys) {
    if (key.only.is_object() || !key.stands_for.empty()) continue;
    INFO(file << ": the default of " << key.name);
    CHECK(is_named_by_any_name(named.all, key, table));
  }
}

// Whether two steps run on 4, 2 or 1 ranks. A file without a batch size takes it from the command line.
bool runs(const std::filesystem::path& file, const std::string& flag) {
  for (const char* ranks : {"4", "2", "1"}) {
    const TempFolder folder;
    const auto tried = [&](const std::string& more) {
      Process process({flag, file.string(), "--model", toy_model(), "--nproc", ranks, "--device", "cpu",
                       "train.steps=2", "run.quiet=true", "run.dir=" + folder.file("run"), more});
      const int code = process.wait(std::chrono::seconds(60));
      return std::pair(code, process.err());
    };
    auto [code, err] = tried("run.name=a");
    if (code != 0 && err.find("are both missing") != std::string::npos)
      std::tie(code, err) = tried("data.micro_batch=2");
    if (code == 0) return true;
    CHECK(err.find("ddhost: ") == 0);  // a sentence of ours
  }
  return false;
}

int number_of_runs(const std::string& program, const std::string& extension, const std::string& flag) {
  int count = 0;
  for (const auto& file : files_of(program, extension)) count += runs(file, flag) ? 1 : 0;
  std::cout << program << ": " << count << " files run" << std::endl;
  return count;
}

}  // namespace

TEST_CASE("every key of a DeepSpeed file and every absent default is accounted for", "[data]") {
  for (const auto& file : files_of("deepspeed", ".json")) check_accounted(file, *ddhost::foreign_table("deepspeed"));
}

TEST_CASE("every key of an Accelerate file and every absent default is accounted for", "[data]") {
  for (const auto& file : files_of("accelerate", ".yaml")) check_accounted(file, *ddhost::foreign_table("accelerate"));
}

TEST_CASE("at least 41 of 51 DeepSpeed files and 12 of 19 Accelerate files train", "[data]") {
  if (files_of("deepspeed", ".json").empty()) return;
  CHECK(number_of_runs("deepspeed", ".json", "--deepspeed_config") >= 41);
  CHECK(number_of_runs("accelerate", ".yaml", "--config_file") >= 12);
}
