// SPDX-License-Identifier: Apache-2.0
//
// Input that is made to do harm: files that are no files, huge values, names that are not UTF-8, folders that vanish. Each
// ends within seconds, with one sentence of limited length that names the input (docs/hostile-input.md).
#include <elf.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>

#include "fixtures/harness/built.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;

namespace {

namespace fs = std::filesystem;
// Ended by itself within 20 seconds (the start of a run included), with a sentence of limited length.
void check_sentence(Process& process, const Words& words) {
  const int code = process.wait(std::chrono::seconds(20));
  const std::string err = process.err();
  INFO(process.command().substr(0, 2000) << "\nexit " << code << "\n" << err.substr(0, 5000));
  CHECK(code > 0);
  CHECK(code < 128);
  for (const std::string& word : words) CHECK_THAT(err, Catch::Contains(word));
  CHECK(std::count(err.begin(), err.end(), '\n') <= 2);
  CHECK(err.size() < 2500);
}

void check_sentence(
    const Words& args, const Words& words, const std::function<void()>& setup = [] {}) {
  const TempFolder folder;
  Words all = {"--model", toy_model(), "--nproc", "2", "train.steps=2", "run.quiet=true", "run.sample_tokens=0"};
  all.insert(all.end(), args.begin(), args.end());
  const bool names_folder =
      std::any_of(args.begin(), args.end(), [](const std::string& arg) { return arg.starts_with("run."); });
  if (!names_folder) all.push_back("run.dir=" + folder.file("run"));
  Process process(all, setup);
  check_sentence(process, words);
}

// Paths that exist and are no regular files, and the word for each.
class SpecialFiles {
 public:
  SpecialFiles() {
    mkfifo(folder_.file("fifo").c_str(), 0644);
    fs::create_directory(folder_.file("folder"));
    fs::create_symlink("loop", folder_.file("loop"));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = folder_.file("socket");
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  SpecialFiles(const SpecialFiles&) = delete;
  SpecialFiles& operator=(const SpecialFiles&) = delete;
  ~SpecialFiles() { close(socket_); }
  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }
  [[nodiscard]] std::map<std::string, std::string> all() const {
    return {
        {file("fifo"), "pipe (FIFO)"}, {file("folder"), "folder"}, {file("socket"), "socket"}, {"/dev/zero", "device"}};
  }

 private:
  TempFolder folder_;
  int socket_ = -1;
};

// Some bytes of the file's header and of what the loader reads: program headers, and the section .dynamic.
std::vector<size_t> flip_places(const std::string& library) {
  Elf64_Ehdr header{};
  std::memcpy(&header, library.data(), sizeof header);
  std::vector<size_t> places;
  const auto add = [&](uint64_t begin, uint64_t bytes, uint64_t step) {
    for (uint64_t at = begin; at < begin + bytes; at += step) places.push_back(at);
  };
  add(0, sizeof header, 13);
  for (uint16_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    const uint64_t at = header.e_phoff + uint64_t{i} * sizeof part;
    std::memcpy(&part, library.data() + at, sizeof part);
    add(at, sizeof part, 19);
    if (part.p_type == PT_DYNAMIC) add(part.p_offset, part.p_filesz, 37);
  }
  return places;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

// The open() of a FIFO waited for a writer, and /dev/zero was read until the memory was full.
TEST_CASE("an input that is no regular file is refused by its name and its kind", "[cli]") {
  const SpecialFiles special;
  for (const auto& [path, kind] : special.all()) {
    check_sentence({"--config", path}, {path, "not a regular file", kind});
    check_sentence({"data.order=" + path}, {path, "not a regular file", kind, "data.order"});
    if (kind != "folder") check_sentence({"train.init_from=" + path}, {path, "not a regular file", kind});
  }
  check_sentence({"train.init_from=" + special.file("folder")}, {special.file("folder"), "name a file"});
}

TEST_CASE("a plugin that is no regular file is refused by its name", "[cli]") {
  const SpecialFiles special;
  for (const auto& [path, kind] : special.all()) check_sentence({"--strategy", path}, {path, "is not a file"});
}

// A run waited for a reader of its log.
TEST_CASE("an output that is a FIFO is refused by its name", "[cli]") {
  for (const char* name : {"log.txt", "config.json"}) {
    const TempFolder folder;
    mkfifo(folder.file(name).c_str(), 0644);
    check_sentence({"run.dir=" + folder.path().string()}, {folder.file(name), "not a regular file"});
  }
  const TempFolder folder;
  mkfifo(folder.file("metrics.csv").c_str(), 0644);
  check_sentence({"--monitor", "csv", "run.dir=" + folder.path().string()}, {"metrics.csv", "not a regular file"});
}

TEST_CASE("a loop of symbolic links is named, wherever it is met", "[cli]") {
  const SpecialFiles special;
  const std::string loop = special.file("loop");
  const std::string reason = "Too many levels of symbolic links";
  check_sentence({"--config", loop}, {loop, reason});
  check_sentence({"data.order=" + loop}, {loop, reason});
  check_sentence({"train.init_from=" + loop}, {loop, reason});
  check_sentence({"run.dir=" + loop + "/run"}, {loop, reason});
  check_sentence({"--strategy", loop}, {loop});
  check_sentence({"--save-final", loop + "/weights"}, {loop, reason});
}

TEST_CASE("a working folder that was removed is reported with a cure", "[cli]") {
  const TempFolder folder;
  const std::string gone = folder.file("gone");
  fs::create_directory(gone);
  const auto leave = [&] {
    if (chdir(gone.c_str()) != 0 || rmdir(gone.c_str()) != 0) _exit(126);
  };
  Process process({"--model", toy_model(), "train.steps=1"}, leave);
  check_sentence(process, {"working folder", "change to an existing folder"});
}

TEST_CASE("names that are not UTF-8 get a sentence with their key", "[cli]") {
  check_sentence({"run.dir=/tmp/ddhost-\xff"}, {"run.dir", "not UTF-8"});
  check_sentence({"data.order=/tmp/\xc3("}, {"data.order", "not UTF-8"});
  check_sentence({"--strategy", "zero\xfe"}, {"--strategy", "not UTF-8"});
  check_sentence({"train.\xff=1"}, {"UTF-8"});
  check_sentence({"--monitor", "j\xffson"}, {"--monitor", "UTF-8"});
  const TempFolder folder;
  const std::string strange = folder.file("b\xe9ta");  // Latin-1
  fs::create_directory(strange);
  const auto enter = [&] {
    if (chdir(strange.c_str()) != 0) _exit(126);
  };
  Process process({"--model", toy_model(), "--nproc", "2", "train.steps=1"}, enter);
  check_sentence(process, {"run.dir", "not UTF-8"});
}

TEST_CASE("a config file that is not UTF-8 or has a NUL byte is refused with the place", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("latin.json")) << "{\"run\": {\"name\": \"b\xe9ta\"}}";
  check_sentence({"--config", folder.file("latin.json")}, {"latin.json", "line 1", "UTF-8"});
  // What followed the NUL byte was lost.
  std::ofstream(folder.file("nul.json")) << std::string("{\"train\": {\"steps\": 1}}\n\0 {\"steps\": 2}", 39);
  check_sentence({"--config", folder.file("nul.json")}, {"nul.json", "line 2", "NUL"});
}

TEST_CASE("a value of 100 KB is shortened in the sentence", "[cli]") {
  const std::string big(100'000, 'x');
  check_sentence({"precision.compute=" + big}, {"precision.compute", "bytes left out", "bf16"});
  check_sentence({"train.steps=" + big}, {"train.steps", "integer"});
  check_sentence({big + "=1"}, {"unknown section", "bytes left out"});
  check_sentence({"train." + big + "=1"}, {"unknown key", "bytes left out"});
  check_sentence({big}, {"bytes left out"});
  check_sentence({"--strategy", big}, {"bytes left out"});
  check_sentence({"--resume", big}, {"bytes left out"});
  check_sentence({"data.order=" + big}, {"data.order"});
  check_sentence({"optimizer.betas=[" + big + "]"}, {"optimizer.betas"});
}

TEST_CASE("a config file is limited to a megabyte, 10,000 keys in an object and 64 levels", "[cli]") {
  const TempFolder folder;
  const std::string file = folder.file("config.json");
  std::ofstream(file) << "{\"train\": {\"steps\": 1}}" << std::string(2'000'000, ' ');
  check_sentence({"--config", file}, {file, "more than 1048576 bytes"});
  {
    std::ofstream out(file);
    out << "{\"train\": {\"k0\": 0";
    for (int i = 1; i < 60'000; ++i) out << ",\"k" << i << "\":0";
    out << "}}";
  }
  const auto begin = std::chrono::steady_clock::now();
  check_sentence({"--config", file}, {file, "more than 10000 keys"});
  CHECK(seconds_since(begin) < 5);
  std::ofstream(file) << std::string(100'000, '[');
  check_sentence({"--config", file}, {file, "more than 64 levels"});
}

TEST_CASE("a run's name that no file system takes is refused with its length", "[cli]") {
  const TempFolder folder;
  Process process({"--model", toy_model(), "train.steps=1", "run.name=" + std::string(300, 'n')},
                  [&] { static_cast<void>(!chdir(folder.path().c_str())); });
  check_sentence(process, {"run.name", "300 bytes", "give another name"});
}

TEST_CASE("a list of monitors may be empty, and a name of spaces is refused", "[cli]") {
  ran(toy_run({"train.steps=1", "--monitor", "[]"}));
  ran(toy_run({"train.steps=1", "--monitor", " csv , jsonl"}));
  check_sentence({"--monitor", "   "}, {"--monitor", "empty name"});
  check_sentence({"--monitor", "csv,,jsonl"}, {"--monitor", "empty name"});
}

// Of 708 such files 65 ended `ddhost inspect` without a word.
TEST_CASE("a plugin with a flipped bit is described or refused, never a silent end", "[cli]") {
  const TempFolder folder;
  const std::string whole = read_text(fake_plugin("good"));
  const std::string damaged = folder.file("damaged.so");
  int refused = 0;
  for (const size_t at : flip_places(whole)) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    std::ofstream(damaged, std::ios::binary | std::ios::trunc) << bytes;
    Process inspect({"inspect", damaged});
    const int code = inspect.wait(std::chrono::seconds(25));
    INFO("byte " << at << ", exit " << code << "\n" << inspect.out() << inspect.err());
    CHECK((code == 0 || code == 1));
    CHECK_THAT(inspect.out() + inspect.err(), Catch::Contains("damaged.so"));
    if (code == 0) continue;
    ++refused;
    CHECK_THAT(inspect.out() + inspect.err(), Catch::Contains("can't be used: ") || Catch::Contains("ddhost: "));
    if (refused % 4 == 0) check_sentence({"--strategy", damaged}, {"damaged.so"});
  }
  CHECK(refused > 4);
}

// The run died of a signal, and no file was named.
TEST_CASE("a plugin that is overwritten in place while it runs is named", "[cli]") {
  const TempFolder folder;
  const std::string model = folder.file("model.so");
  fs::copy(toy_model(), model);
  Process process(
      {"--model", model, "--nproc", "2", "train.steps=100000000", "run.quiet=true", "run.dir=" + folder.file("run")});
  const auto begin = std::chrono::steady_clock::now();
  std::error_code ec;
  while ((fs::file_size(folder.path() / "run/metrics.jsonl", ec) == 0 || ec) && seconds_since(begin) < 30)
    usleep(10'000);
  std::ofstream(model, std::ios::trunc) << "a new version is being written";
  check_sentence(process, {model, "overwritten", "rename"});
}

// Another section's key was suggested that only looks alike.
TEST_CASE("an unknown key of a schedule is answered with the keys that the schedule takes", "[cli]") {
  check_sentence({"schedule.type=constant", "schedule.step_size=3"},
                 {"schedule.step_size", "schedule 'constant'", "takes"});
  check_sentence({"schedule.type=cosine", "schedule.warmup_step=3"}, {"did you mean 'schedule.warmup_steps'"});
}
