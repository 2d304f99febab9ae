// SPDX-License-Identifier: Apache-2.0
//
// plugin/probe.cpp: forks, loads the library in the child, and sends JSON over a pipe, ended by a NUL byte.
#include "plugin/probe.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

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
constexpr size_t kMostMessage = size_t{64} << 20;  // bytes that a child may send

std::vector<std::string> list_of(const char* const* ids) {
  std::vector<std::string> list;
  for (; ids != nullptr && *ids != nullptr && list.size() < kMostIds; ++ids)
    list.push_back(plain_text(*ids, kShownValue));
  return list;
}

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
          {"understands", p.understands}};
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
  return p;
}

Json to_json(const Library& library) {
  const ddh_build& build = *library.module().build;
  Json json = {
      {"abi_major", build.abi_major},   {"abi_minor", build.abi_minor}, {"min_host_minor", build.min_host_minor},
      {"torch", build.torch_version},   {"cuda", build.cuda_version},   {"nccl", build.nccl_version},
      {"warnings", library.warnings()}, {"plugins", Json::array()}};
  for (uint32_t i = 0; i < library.module().n_desc; ++i)
    json["plugins"].push_back(to_json(facts_of(*library.module().desc[i])));
  return json;
}

LibraryFacts library_from(const Json& json) {
  LibraryFacts facts;
  json.at("abi_major").get_to(facts.abi_major);
  json.at("abi_minor").get_to(facts.abi_minor);
  json.at("min_host_minor").get_to(facts.min_host_minor);
  json.at("torch").get_to(facts.torch_version);
  json.at("cuda").get_to(facts.cuda_version);
  json.at("nccl").get_to(facts.nccl_version);
  json.at("warnings").get_to(facts.warnings);
  for (const Json& plugin : json.at("plugins")) facts.plugins.push_back(plugin_from(plugin));
  return facts;
}

// Runs in the child. Output of the library, and output that the C library flushes at exit, is discarded.
[[noreturn]] void load_and_report(const fs::path& file, InterfaceLookup lookup, MissingInterfaces missing, int pipe) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, fd);
  Json answer;
  try {
    answer["library"] = to_json(Library::load(file, lookup, missing));
  } catch (const ddh::Error& error) {
    answer = {{"code", error.code()}, {"sentence", plain_text(error.what())}};
  } catch (const std::exception& error) {
    answer = {{"code", DDH_INTERNAL}, {"sentence", sentence_of(error)}};
  }
  const std::string text = answer.dump(-1, ' ', false, Json::error_handler_t::replace);
  const char* at = text.c_str();
  for (size_t left = text.size() + 1; left > 0;) {  // including the NUL at its end
    const ssize_t n = ::write(pipe, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    at += n;
    left -= static_cast<size_t>(n);
  }
  ::_exit(0);
}

// The child; killed, with what it started, and waited for at the end.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) { ::setpgid(pid, pid); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(-pid_, SIGKILL);
    if (!reaped_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  // Its status from waitpid, or nullopt if it has not ended in time.
  std::optional<int> wait(SteadyClock::time_point end) {
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) != pid_) {
      if (SteadyClock::now() >= end) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    reaped_ = true;
    return status;
  }

 private:
  pid_t pid_;
  bool reaped_ = false;
};

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  [[nodiscard]] int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

// The message up to its NUL; shorter if the child ended or the time was up.
std::string read_message(int pipe, SteadyClock::time_point end) {
  std::string text;
  std::array<char, 4096> part{};
  while ((text.empty() || text.back() != '\0') && text.size() < kMostMessage) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - SteadyClock::now()).count();
    pollfd waiting{pipe, POLLIN, 0};
    const int ready = left <= 0 ? 0 : ::poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const ssize_t n = ::read(pipe, part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(part.data(), static_cast<size_t>(n));
  }
  return text;
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

}  // namespace

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
                    desc.understands};
  if (desc.config_schema != nullptr) facts.config_schema = desc.config_schema;
  return facts;
}

LibraryFacts probe(const fs::path& file, InterfaceLookup lookup, MissingInterfaces missing,
                   std::chrono::milliseconds limit) {
  const ElfFacts elf = read_elf(file);  // reading its headers and its note needs no child
  if (!elf.problem.empty()) refuse_plugin(file, elf.problem);
  if (elf.note) check_note(file, *elf.note);

  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "a pipe could not be made: ", std::strerror(errno), "; close other programs");
  const Descriptor reader(ends[0]);
  Descriptor writer(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "a process to inspect '", file.string(),
              "' could not be started: ", std::strerror(errno), "; close other programs");
  if (pid == 0) load_and_report(file, lookup, missing, writer.get());
  Child child(pid);
  writer.close();
  const auto end = SteadyClock::now() + limit;
  std::string text = read_message(reader.get(), end);
  if (text.size() >= kMostMessage && text.back() != '\0')
    refuse_plugin(file, ddh::str("describes itself in more than ", kMostMessage >> 20, " MiB; shorten its texts"));
  if (text.empty() || text.back() != '\0') fail_silent_child(file, child.wait(end), limit);
  text.pop_back();
  const Json answer = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (answer.is_object() && answer.contains("sentence"))
    throw ddh::Error(answer["code"].get<ddh_rc>(), answer["sentence"].get<std::string>());
  try {
    return library_from(answer.at("library"));
  } catch (const Json::exception&) {
    refuse_damaged(file, "what it says about itself can't be read");
  }
}

}  // namespace ddhost
