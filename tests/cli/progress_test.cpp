// SPDX-License-Identifier: Apache-2.0
//
// What a run says while it trains and at its end: into a file, and on a terminal of a given width.
#include <pty.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <sstream>

#include "base/terminal.hpp"
#include "fixtures/harness/setting.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> progress_of(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string& line : lines_of(text))
    if (line.starts_with("step ") && line.find("left ") != std::string::npos) lines.push_back(line);
  return lines;
}

Words run_words(const TempFolder& folder, const Words& more) {
  return joined({"--model", toy_model(), "--nproc", "2", "run.sample_tokens=0", "run.dir=" + folder.file("run")}, more);
}

// What a run writes to a terminal, whose width changes once it has written a progress line.
std::string on_terminal(const Words& words, unsigned short columns, unsigned short later = 0) {
  int fd = -1;
  winsize size{24, columns, 0, 0};
  const pid_t pid = forkpty(&fd, nullptr, nullptr, &size);
  REQUIRE(pid >= 0);
  if (pid == 0) {
    setenv("TERM", "xterm", 1);
    std::string program = ddhost_program();
    Words all = words;
    std::vector<char*> argv = {program.data()};
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  std::string out;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(fd, buffer, sizeof buffer)) > 0;) {
    out.append(buffer, static_cast<size_t>(n));
    if (later == 0 || out.find("loss ") == std::string::npos) continue;
    size.ws_col = std::exchange(later, static_cast<unsigned short>(0));
    REQUIRE(ioctl(fd, TIOCSWINSZ, &size) == 0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  close(fd);
  CHECK(status == 0);
  return out;
}

// Commands and paths stay whole, so that they can be copied.
bool has_path(const std::string& line) { return line.find("/run") != std::string::npos; }

// The texts between two returns to the start of a line, without what clears the rest.
std::vector<std::string> drawn(const std::string& out) {
  std::vector<std::string> texts;
  for (size_t at = out.find('\r'); at != std::string::npos;) {
    const size_t end = std::min(out.find_first_of("\r\n\x1b", at + 1), out.size());
    const std::string text = out.substr(at + 1, end - at - 1);
    if (text.find("loss ") != std::string::npos && text.find('/') != std::string::npos) texts.push_back(text);
    at = out.find('\r', at + 1);
  }
  return texts;
}

}  // namespace

TEST_CASE("a run of 300 steps into a file gives a readable log", "[progress]") {
  const TempFolder folder;
  const Said said = call_ddhost(run_words(folder, {"train.steps=300"}));
  INFO(said.err);
  REQUIRE(said.code == 0);
  const std::vector<std::string> lines = progress_of(said.err);
  CHECK(lines.size() >= 10);
  CHECK(lines.size() <= 20);  // one more for each 10 s
  for (const char* word : {"step 300/300", "epoch ", "loss ", "samples/s", " ms", "left ", "memory ", "no checkpoint"})
    CHECK_THAT(lines.back(), Contains(word));
  for (const char c : said.err) CHECK((c == '\n' || static_cast<unsigned char>(c) >= 0x20));
  CHECK_THAT(said.out, Contains("trained to step 300 of 300") && Contains("samples/s of all ranks") &&
                           Contains("weights: ") && Contains("next:"));
}

TEST_CASE("print_every=0, progress=off and quiet print no progress", "[progress]") {
  for (const char* option : {"monitor.print_every=0", "monitor.progress=off", "run.quiet=true"}) {
    const TempFolder folder;
    const Said said = call_ddhost(run_words(folder, {"train.steps=50", option}));
    CHECK(said.code == 0);
    CHECK(progress_of(said.err).empty());
  }
}

TEST_CASE("print_every asks for more lines than one for each tenth of the steps", "[progress]") {
  const TempFolder folder;
  const Said said = call_ddhost(run_words(folder, {"train.steps=40", "monitor.print_every=0.000001"}));
  CHECK(progress_of(said.err).size() == 40);
}

TEST_CASE("on a terminal the progress is one line that fits, and other output takes its place", "[progress]") {
  const auto columns = GENERATE(as<unsigned short>{}, 40, 80, 200);
  const TempFolder folder;
  const std::string out =
      on_terminal(run_words(folder, {"train.steps=3000", "train.eval_every=1000", "checkpoint.every=1500"}), columns);
  const std::vector<std::string> texts = drawn(out);
  INFO(out);
  REQUIRE(!texts.empty());
  for (const std::string& text : texts) CHECK(ddhost::columns_of(text) < columns);
  CHECK_THAT(texts.back(), Contains("3000/3000"));
  // A line of the log begins its row.
  for (const char* line : {"step 3000: validation", "checkpoint after step 1500"}) {
    const size_t at = out.find(line);
    REQUIRE(at != std::string::npos);
    CHECK((out[at - 1] == '\n' || out.compare(at - 4, 4, "\r\x1b[K") == 0));
  }
  // The tables fit too.
  const size_t tables = out.find("memory (now");
  REQUIRE(tables != std::string::npos);
  for (std::string line : lines_of(out.substr(tables))) {
    line.erase(std::remove(line.begin(), line.end(), '\r'), line.end());
    if (!has_path(line)) CHECK(ddhost::columns_of(line) <= columns);
  }
}

TEST_CASE("a terminal that gets narrower gets shorter lines", "[progress]") {
  const TempFolder folder;
  const std::vector<std::string> texts = drawn(on_terminal(run_words(folder, {"train.steps=8000"}), 200, 60));
  REQUIRE(texts.size() > 3);
  CHECK(ddhost::columns_of(texts.front()) > 60);
  CHECK(ddhost::columns_of(texts.back()) < 60);
}

TEST_CASE("a simple terminal gets plain lines", "[progress]") {
  const TempFolder folder;
  Process run(run_words(folder, {"train.steps=20"}), [] { setenv("TERM", "dumb", 1); });
  CHECK(run.wait() == 0);
  CHECK(progress_of(run.err()).size() >= 10);
}

TEST_CASE("eight ranks share columns for the least, the median and the most", "[progress]") {
  const TempFolder folder;
  const Said said =
      call_ddhost(run_words(folder, {"--nproc", "8", "--comm", "loop", "train.steps=3", "data.micro_batch=2"}));
  INFO(said.out << said.err);
  REQUIRE(said.code == 0);
  CHECK_THAT(said.out,
             Contains("peak, least      median        most") && Contains("\n  median ") && !Contains("rank 7"));
  for (const std::string& line : lines_of(said.out))
    if (!has_path(line)) CHECK(line.size() <= 80);
}

TEST_CASE("the commands at the end of a run work as they are printed", "[progress]") {
  const TempFolder folder;
  const Said said = call_ddhost(run_words(folder, {"train.steps=5", "checkpoint.every=5"}));
  REQUIRE(said.code == 0);
  size_t commands = 0;
  for (const std::string& line : lines_of(said.out)) {
    if (!line.starts_with("  " + ddhost_program())) continue;
    INFO(line);
    CHECK(std::system((line + " >/dev/null 2>&1").c_str()) == 0);
    ++commands;
  }
  CHECK(commands == 3);  // eval, export, runs show
}

TEST_CASE("a rank that the others wait for is named, with what takes it long", "[cli]") {
  const TempFolder folder;
  const Setting mark("MISBEHAVE_MARK", folder.file("mark"));
  const Said said =
      call_ddhost({"--model", test_plugin("bad_model"), "--strategy", "zero1", "--nproc", "2", "train.steps=60",
                   "model.fault=late", "model.at=backward", "run.dir=" + folder.file("run")});
  INFO(said.out << said.err);
  REQUIRE(said.code == 0);
  CHECK_THAT(said.err,
             Catch::Matches("(.|\n)*steps 1 to 50: rank [01] computes for [0-9.]+ ms of a step, the median rank for "
                            "[0-9.]+ ms, so the others wait for it; look for other programs on its cores(.|\n)*"));
}
