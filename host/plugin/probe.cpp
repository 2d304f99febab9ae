// SPDX-License-Identifier: Apache-2.0
//
// plugin/probe.cpp: a child loads the library and answers with JSON.
#include "plugin/probe.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/child_process.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "plugin/check_module.hpp"
#include "plugin/elf_note.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kMostIds = 256;

std::vector<std::string> list_of(const char* const* ids) {
  std::vector<std::string> list;
  for (; ids != nullptr && *ids != nullptr && list.size() < kMostIds; ++ids)
    list.push_back(plain_text(*ids, kShownValue));
  return list;
}

std::string text_or_empty(const char* text) { return text == nullptr ? "" : plain_text(text, kShownValue); }

Json to_json(const PluginFacts& p) {
  return {{"kind", p.kind},
          {"id", p.id},
          {"version", p.version},
          {"summary", p.summary},
          {"needs", p.needs},
          {"wants", p.wants},
          {"config_schema", p.config_schema ? Json(*p.config_schema) : Json()},
          {"caps", p.caps},
          {"uses", p.uses},
          {"understands", p.understands},
          {"uses_ids", p.uses_ids},
          {"understands_ids", p.understands_ids},
          {"vendor", p.vendor},
          {"url", p.url},
          {"license", p.license}};
}

PluginFacts plugin_from(const Json& json) {
  PluginFacts p;
  json.at("kind").get_to(p.kind);
  json.at("id").get_to(p.id);
  json.at("version").get_to(p.version);
  json.at("summary").get_to(p.summary);
  json.at("needs").get_to(p.needs);
  json.at("wants").get_to(p.wants);
  if (!json.at("config_schema").is_null()) p.config_schema = json.at("config_schema").get<std::string>();
  json.at("caps").get_to(p.caps);
  json.at("uses").get_to(p.uses);
  json.at("understands").get_to(p.understands);
  json.at("uses_ids").get_to(p.uses_ids);
  json.at("understands_ids").get_to(p.understands_ids);
  json.at("vendor").get_to(p.vendor);
  json.at("url").get_to(p.url);
  json.at("license").get_to(p.license);
  return p;
}

LibraryFacts facts_of_library(const Library& library) {
  const ddh_build& build = *library.module().build;
  LibraryFacts facts{build.abi_major,   build.abi_minor, build.min_host_minor, libraries_of(build), {},
                     library.warnings()};
  for (uint32_t i = 0; i < library.module().n_desc; ++i) facts.plugins.push_back(facts_of(*library.module().desc[i]));
  return facts;
}

Json to_json(const LibraryFacts& facts) {
  Json json = {
      {"abi_major", facts.abi_major},          {"abi_minor", facts.abi_minor}, {"min_host_minor", facts.min_host_minor},
      {"libraries", to_json(facts.libraries)}, {"warnings", facts.warnings},   {"plugins", Json::array()}};
  for (const PluginFacts& plugin : facts.plugins) json["plugins"].push_back(to_json(plugin));
  return json;
}

LibraryFacts library_from(const Json& json) {
  LibraryFacts facts;
  json.at("abi_major").get_to(facts.abi_major);
  json.at("abi_minor").get_to(facts.abi_minor);
  json.at("min_host_minor").get_to(facts.min_host_minor);
  facts.libraries = libraries_from(json.at("libraries"));
  json.at("warnings").get_to(facts.warnings);
  for (const Json& plugin : json.at("plugins")) facts.plugins.push_back(plugin_from(plugin));
  return facts;
}

// What the child sends.
std::string report(const fs::path& file, InterfaceLookup lookup, MissingInterfaces missing) {
  Json answer;
  try {
    answer["library"] = to_json(facts_of_library(Library::load(file, lookup, missing)));
  } catch (const ddh::Error& error) {
    answer = {{"code", error.code()}, {"sentence", plain_text(error.what())}};
  } catch (const std::exception& error) {
    answer = {{"code", DDH_INTERNAL}, {"sentence", sentence_of(error)}};
  }
  return json_line(answer);
}

constexpr int kLoaderGivesUp = 127;  // the exit code of ld.so

[[noreturn]] void refuse_damaged(const fs::path& file, const std::string& why) {
  ddh::fail(DDH_DATA_LOSS, "plugin '", file.string(), "' is damaged: ", why, "; fix it, or build or copy it again");
}

[[noreturn]] void fail_silent_child(const fs::path& file, std::optional<int> status, std::chrono::milliseconds limit) {
  if (!status)
    ddh::fail(DDH_DEADLINE_EXCEEDED, "plugin '", file.string(), "' was still being loaded after ",
              std::chrono::duration<double>(limit).count(),
              " s; its constructors and its entry must return at once: fix it, or take it out of the folder");
  if (WIFSIGNALED(*status))
    refuse_damaged(
        file, ddh::str("loading it ends with signal ", WTERMSIG(*status), " (", ::strsignal(WTERMSIG(*status)), ")"));
  if (WEXITSTATUS(*status) == kLoaderGivesUp)
    refuse_damaged(file, "the system's loader of libraries can't make sense of it");
  ddh::fail(DDH_INTERNAL, "plugin '", file.string(), "' ended the process that loaded it (exit code ",
            WEXITSTATUS(*status), "); its constructors and its entry must not call exit: fix it");
}

Probed probe_one(const fs::path& file, InterfaceLookup lookup, MissingInterfaces missing) {
  try {
    return {file, probe(file, lookup, missing), DDH_OK, ""};
  } catch (const ddh::Error& error) {
    return {file, std::nullopt, error.code(), error.what()};
  }
}

// Whether the file needs no large library, such as LibTorch.
bool is_plain(const fs::path& file) {
  try {
    const ElfFacts elf = read_elf(file);
    return !elf.note || elf.note->libraries.empty();
  } catch (const ddh::Error&) {  // probe_one says why
    return true;
  }
}

// In a child. One that loads large libraries does so once: the children that it forks for single files have them.
std::string report_all(const std::vector<fs::path>& files, bool are_plain, InterfaceLookup lookup,
                       MissingInterfaces missing) {
  Json answers = Json::array();
  for (const fs::path& file : files) {
    if (!are_plain) prepare_libraries_of(file, {});
    const Probed one = probe_one(file, lookup, missing);
    answers.push_back(one.facts ? Json{{"library", to_json(*one.facts)}}
                                : Json{{"code", one.code}, {"sentence", one.problem}});
  }
  return json_line(answers);
}

// Files that one child inspects.
struct ProbedTogether {
  std::vector<fs::path> files;
  std::vector<size_t> numbers;  // of the files among all
  std::unique_ptr<ChildProcess> child;

  void start(bool are_plain, InterfaceLookup lookup, MissingInterfaces missing) {
    if (files.empty()) return;
    child = std::make_unique<ChildProcess>("to inspect plugins",
                                           [&, are_plain] { return report_all(files, are_plain, lookup, missing); });
  }
  std::vector<Probed> answers(InterfaceLookup lookup, MissingInterfaces missing) {
    std::vector<Probed> out;
    if (files.empty()) return out;
    const std::optional<std::string> text =
        child->answer(SteadyClock::now() + kProbeLimit * static_cast<int64_t>(files.size() + 1));
    const Json answers = text ? Json::parse(*text, nullptr, /*allow_exceptions=*/false) : Json();
    if (!answers.is_array() || answers.size() != files.size()) {  // the child has ended, perhaps by a large library
      for (const fs::path& file : files) out.push_back(probe_one(file, lookup, missing));
      return out;
    }
    for (size_t i = 0; i < files.size(); ++i) {
      Probed& one = out.emplace_back(Probed{files[i], std::nullopt, DDH_OK, ""});
      if (answers[i].contains("library"))
        one.facts = library_from(answers[i]["library"]);
      else
        answers[i].at("code").get_to(one.code), answers[i].at("sentence").get_to(one.problem);
    }
    return out;
  }
};

}  // namespace

const LibraryFacts& Probed::get() const {
  if (!facts) throw ddh::Error(code, problem);
  return *facts;
}

std::vector<Probed> probe_all(const std::vector<fs::path>& files, InterfaceLookup lookup, MissingInterfaces missing) {
  struct Folder {
    ProbedTogether plain, others;
  };
  std::map<fs::path, Folder> folders;  // plugins of another folder may need another LibTorch
  for (size_t i = 0; i < files.size(); ++i) {
    Folder& folder = folders[files[i].parent_path()];
    ProbedTogether& group = is_plain(files[i]) ? folder.plain : folder.others;
    group.files.push_back(files[i]);
    group.numbers.push_back(i);
  }
  std::vector<Probed> out(files.size());
  for (auto& [path, folder] : folders) {
    // While one child loads large libraries, another one inspects the files that need none: its forks are cheap.
    folder.others.start(false, lookup, missing);
    folder.plain.start(true, lookup, missing);
    for (ProbedTogether* const group : {&folder.plain, &folder.others}) {
      std::vector<Probed> answers = group->answers(lookup, missing);
      for (size_t i = 0; i < answers.size(); ++i) out[group->numbers[i]] = std::move(answers[i]);
    }
  }
  return out;
}

PluginFacts facts_of(const ddh_desc& desc) {
  PluginFacts facts{desc.kind,
                    desc.id,
                    plain_text(desc.version, kShownValue),
                    plain_text(desc.summary, kShownValue),
                    list_of(desc.needs),
                    list_of(desc.wants),
                    {},
                    desc.caps,
                    desc.uses,
                    desc.understands,
                    list_of(desc.uses_ids),
                    list_of(desc.understands_ids),
                    text_or_empty(desc.vendor),
                    text_or_empty(desc.url),
                    text_or_empty(desc.license)};
  if (desc.config_schema != nullptr) facts.config_schema = desc.config_schema;
  return facts;
}

LibraryFacts probe(const fs::path& file, InterfaceLookup lookup, MissingInterfaces missing,
                   std::chrono::milliseconds limit) {
  const ElfFacts elf = read_elf(file);  // reading its headers and its note needs no child
  if (!elf.problem.empty()) refuse_plugin(file, elf.problem);
  if (elf.note) check_note(file, *elf.note);

  ChildProcess child("to inspect '" + file.string() + "'", [&] { return report(file, lookup, missing); });
  const auto end = SteadyClock::now() + limit;
  const std::optional<std::string> text = child.answer(end);
  if (child.is_too_long() && !text)
    refuse_plugin(
        file, ddh::str("describes itself in more than ", ChildProcess::kMostAnswer >> 20, " MiB; shorten its texts"));
  if (!text) fail_silent_child(file, child.wait(end), limit);
  const Json answer = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (answer.is_object() && answer.contains("sentence"))
    throw ddh::Error(answer["code"].get<ddh_rc>(), answer["sentence"].get<std::string>());
  try {
    return library_from(answer.at("library"));
  } catch (const Json::exception&) {
    refuse_damaged(file, "what it says about itself can't be read");
  }
}

}  // namespace ddhost
