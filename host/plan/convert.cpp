// SPDX-License-Identifier: Apache-2.0
#include "plan/convert.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <functional>

#include "base/child_process.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "ddh/kind/format.h"
#include "ddh/sdk/plugin.hpp"
#include "plan/convert_child.hpp"
#include "plugin/elf_note.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLook{50};  // from one look at the child to the next

std::string gib_text(uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), bytes < uint64_t{1} << 30 ? "%.1f MiB" : "%.1f GiB",
                static_cast<double>(bytes) / (bytes < uint64_t{1} << 30 ? 1048576.0 : 1073741824.0));
  return text.data();
}

// A checkpoint of this program, and files with the names of safetensors, are never another program's.
bool is_own(const fs::path& path) {
  std::error_code ec;
  return fs::exists(path / "manifest.json", ec) || (!fs::is_directory(path, ec) && is_safetensors_name(path));
}

// The names that Hugging Face gives a model's weights; other safetensors files may be anything.
bool holds_safetensors(const fs::path& path) {
  std::error_code ec;
  return fs::exists(path / "model.safetensors", ec) || fs::exists(path / "model.safetensors.index.json", ec);
}

// By its note, because a library of another kind is not loaded here.
void require_format(const fs::path& file) {
  const std::optional<PluginNote> note = read_elf(file).note;
  if (!note) return;  // loading it says what it is
  std::string others;
  for (const NotePlugin& plugin : note->plugins) {
    if (plugin.kind == kind_name(DDH_KIND_FORMAT)) return;
    others += ddh::str(others.empty() ? "" : " and ", "the ", plugin.kind, " '", plugin.id, "'");
  }
  ddh::fail(DDH_INVALID_ARGUMENT, "'", file.string(), "' holds ", others.empty() ? "no plugin" : others,
            ", not a format; choose a format (`ddhost list`), or leave the choice to auto");
}

std::vector<Choice> formats_of(const std::string& format, const Registry& registry) {
  if (format == "auto") {
    std::vector<Choice> out;
    for (const fs::path& file : registry.files_of(DDH_KIND_FORMAT)) out.push_back({file.string(), "", true});
    return out;
  }
  const Choice choice = parse_choice(format);
  if (choice.is_path) {
    const fs::path file = registry.locate(choice.file, fs::current_path());
    require_format(file);
    return {{file.string(), choice.id, true}};
  }
  std::vector<Choice> out;
  for (const fs::path& file : registry.files_of(DDH_KIND_FORMAT, format)) out.push_back({file.string(), format, true});
  if (out.size() == 1) return out;
  if (out.empty())
    ddh::fail(DDH_NOT_FOUND, "there is no format '", format, "'; there are: ", registry.names_of(DDH_KIND_FORMAT),
              "; give auto, one of them, or the path of a plugin");
  ddh::fail(DDH_INVALID_ARGUMENT, "the name '", format, "' of a format is in ", out[0].file, " and ", out[1].file,
            "; give the path of the file that you want");
}

// Watches a child until it answers, and says why it does not.
class Watched {
 public:
  using Task = std::function<std::string(ConvertRecord&)>;
  Watched(const fs::path& path, const ConvertLimits& limits, const Task& task, int kept)
      : path_(path),
        limits_(limits),
        child_(
            "to read '" + path.string() + "'", [&] { return task(record_); }, kept) {}

  // Error: what the child or its end says. `notes`: lines of the plugin's log.
  Json answer(std::vector<std::string>& notes) {
    for (;;) {
      const auto now = ChildProcess::Clock::now();
      if (const std::optional<std::string> text = child_.answer(now + kLook)) return parsed(*text, notes);
      if (child_.is_silent() || child_.is_too_long()) fail_silent();
      check_memory();
      check_call(now);
    }
  }

 private:
  [[nodiscard]] std::string doing() const {
    const std::string call = record_.call();
    return call.empty() ? "" : ", in " + call;
  }
  [[nodiscard]] std::string limit_text() const {
    return "it may use " + gib_text(limits_.memory_bytes) + " of memory (" + limits_.memory_key + ")";
  }
  Json parsed(const std::string& text, std::vector<std::string>& notes) const {
    Json answer = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object()) ddh::fail(DDH_INTERNAL, "the process that reads '", path_.string(), "' gave no answer");
    for (const Json& note : answer.value("notes", Json::array())) notes.push_back(note.get<std::string>());
    if (!answer.contains("sentence")) return answer;
    const auto sentence = answer["sentence"].get<std::string>();
    const auto code = answer["code"].get<ddh_rc>();
    if (!answer.contains("is_memory")) throw ddh::Error(code, sentence);
    ddh::fail(code, "'", path_.string(), "' could not be read: ", sentence, "; ", limit_text(), ", raise it");
  }
  [[noreturn]] void fail_silent() {
    if (child_.is_too_long())
      ddh::fail(DDH_INTERNAL, "the process that reads '", path_.string(),
                "' answered with too long a text; fix the plugin");
    const std::optional<int> status = child_.wait(ChildProcess::Clock::now() + std::chrono::seconds(2));
    const std::string end = !status                ? "closed its pipe"
                            : WIFSIGNALED(*status) ? ddh::str("ended with signal ", WTERMSIG(*status), " (",
                                                              ::strsignal(WTERMSIG(*status)), ")")
                                                   : ddh::str("ended with exit code ", WEXITSTATUS(*status));
    ddh::fail(DDH_INTERNAL, "the process that reads '", path_.string(), "' ", end, doing(), "; ", limit_text(),
              "; fix the plugin, or give a safetensors file");
  }
  void check_memory() const {
    const uint64_t first = record_.first_bytes(), now = anonymous_bytes(child_.pid());
    if (first == 0 || now <= first + limits_.memory_bytes) return;
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "the process that reads '", path_.string(), "' took ", gib_text(now - first),
              " of memory", doing(), "; ", limit_text(), ", raise it or fix the plugin");
  }
  void check_call(ChildProcess::Clock::time_point now) {
    const std::string call = record_.call();
    if (const uint64_t calls = record_.calls(); calls != calls_) {
      calls_ = calls;
      since_ = now;
    }
    if (call.empty() || limits_.call.count() == 0 || now - since_ < limits_.call) return;
    ddh::fail(DDH_DEADLINE_EXCEEDED, call, " has not returned for ",
              std::chrono::duration<double>(limits_.call).count(), " s while it read '", path_.string(),
              "'; fix the plugin, give a safetensors file, or raise ", limits_.call_key);
  }

  const fs::path& path_;
  const ConvertLimits& limits_;
  ConvertRecord record_;
  ChildProcess child_;  // after the record, which it writes
  uint64_t calls_ = 0;
  ChildProcess::Clock::time_point since_ = ChildProcess::Clock::now();
};

// A file without a name: it goes with the last process that has it open, also where the disk knows only files with names.
std::shared_ptr<const NewFile> unnamed_file(const fs::path& folder, const fs::path& path) {
  const fs::path place = folder.empty() ? fs::temp_directory_path() : folder;
  auto file = std::make_shared<const NewFile>(place, place / ("copy of " + path.filename().string()));
  if (!file->hidden().empty()) ::unlink(file->hidden().c_str());
  return file;
}

// The format that reads the path; nullopt: none does.
std::optional<Choice> chosen_format(const fs::path& path, const ConvertRequest& request, const Registry& registry,
                                    std::vector<std::string>& notes) {
  const std::vector<Choice> formats = formats_of(request.format, registry);
  if (request.format != "auto") return formats.front();
  if (formats.empty()) return std::nullopt;
  const bool is_native = holds_safetensors(path);
  const Json found = Watched(
                         path, request.limits,
                         [&](ConvertRecord& record) {
                           return recognize_in_child(path, formats, is_native, request.limits.memory_bytes, record);
                         },
                         -1)
                         .answer(notes);
  if (!found.contains("file")) return std::nullopt;
  return Choice{found.at("file").get<std::string>(), found.at("id").get<std::string>(), true};
}

}  // namespace

uint64_t convert_memory(const std::string& text, const std::string& key) {
  if (text == "auto")
    return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 4;
  if (const std::optional<uint64_t> bytes = bytes_from_text(text)) return *bytes;
  ddh::fail(DDH_INVALID_ARGUMENT, key, "=", text,
            " is not a size; give auto, for a quarter of the machine's memory; or ", kSizeForms);
}

std::optional<ConvertedFile> convert_foreign(const fs::path& path, const ConvertRequest& request,
                                             const Registry& registry, std::vector<std::string>& notes) {
  std::error_code ec;
  if (is_own(path) || !fs::exists(path, ec)) return std::nullopt;
  const std::optional<Choice> format = chosen_format(path, request, registry, notes);
  if (!format) return std::nullopt;
  const ConvertLimits& limits = request.limits;
  ConvertedFile out;
  out.file = unnamed_file(request.folder, path);
  const ConvertTask task{path, *format, request.weights_only, limits.memory_bytes};
  const RangeFile& file = out.file->data();
  const Json answer =
      Watched(
          path, limits, [&](ConvertRecord& record) { return convert_in_child(task, file, record); }, file.descriptor())
          .answer(notes);
  out.what = answer.at("what").get<std::string>();
  out.step = answer.at("step").get<int64_t>();
  out.other_step = answer.at("other_step").get<std::string>();
  notes.push_back(ddh::str("'", path.string(), "', ", out.what, ", was read by ",
                           answer.at("format").get<std::string>(), " with at most ", gib_text(limits.memory_bytes),
                           " of memory (", limits.memory_key, ")"));
  return out;
}

}  // namespace ddhost
