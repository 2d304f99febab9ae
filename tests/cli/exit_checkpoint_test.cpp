// SPDX-License-Identifier: Apache-2.0
//
// A run without checkpoints that a signal ends: it writes one, says how to go on, and goes on with the same bits.
#include <sys/wait.h>

#include <csignal>
#include <filesystem>

#include "fixtures/harness/processes.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

Words run_words(const std::string& dir, const Words& more) {
  return joined(
      {"--model", toy_model(), "--nproc", "2", "--strategy", "zero2", "run.sample_tokens=0", "run.dir=" + dir}, more);
}

size_t rows_in(const std::string& dir) {
  const std::string text = read_text(dir + "/metrics.jsonl");
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// Ends the run after some steps.
void stop(Process& run, const std::string& dir, int signal) {
  REQUIRE(soon([&] { return rows_in(dir) >= 20; }));
  REQUIRE(kill(run.pid(), signal) == 0);
  CHECK(run.wait(std::chrono::seconds(30)) == 128 + signal);
}

std::string after(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  if (at == std::string::npos) return "";
  const size_t begin = at + words.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("a signal in a run without checkpoints writes one, and the printed command goes on with the same bits",
          "[exit]") {
  const int signal = GENERATE(SIGINT, SIGHUP, SIGTERM);
  const char* const comm = GENERATE("shm", "loop");
  const TempFolder folder;
  const std::string dir = folder.file("run");
  const Words words = {"--comm", comm, "train.steps=6000"};
  Process run(run_words(dir, words));
  stop(run, dir, signal);
  INFO(run.err());
  REQUIRE(fs::exists(dir + "/checkpoints/latest"));
  const std::string command = after(run.err(), "this continues the run: ");
  REQUIRE(!command.empty());
  CHECK_THAT(read_text(dir + "/log.txt"), Contains(command));  // also where the terminal was closed
  REQUIRE(std::system((command + " >/dev/null 2>&1").c_str()) == 0);
  REQUIRE(call_ddhost(run_words(folder.file("whole"), words)).code == 0);
  CHECK(rows_of(dir) == rows_of(folder.file("whole")));
}

TEST_CASE("checkpoint.on_exit=false keeps the disk as it is, and a run that ends by itself writes none", "[exit]") {
  const TempFolder folder;
  const std::string dir = folder.file("run");
  Process run(run_words(dir, {"train.steps=1000000", "checkpoint.on_exit=false"}));
  stop(run, dir, SIGTERM);
  CHECK_FALSE(fs::exists(dir + "/checkpoints"));
  CHECK(call_ddhost(run_words(folder.file("whole"), {"train.steps=5"})).code == 0);
  CHECK_FALSE(fs::exists(folder.file("whole/checkpoints")));
}

TEST_CASE("a checkpoint on exit takes no memory before the signal", "[exit]") {
  const TempFolder folder;
  const auto memory = [&](const std::string& name, const char* option) {
    REQUIRE(call_ddhost(run_words(folder.file(name), {"train.steps=3", "run.quiet=true", option})).code == 0);
    return read_run(folder.file(name)).summary.at("ranks").at(0).at("memory_bytes").dump();
  };
  CHECK(memory("on", "checkpoint.on_exit=true") == memory("off", "checkpoint.on_exit=false"));
}

TEST_CASE("a write of a checkpoint that lasts longer than launch.grace is no standstill", "[exit]") {
  const TempFolder folder;
  const std::string dir = folder.file("run");
  Process run(run_words(dir, {"train.steps=1000000", "model.hidden=20000", "launch.grace=0.02", "monitor.every=1"}));
  stop(run, dir, SIGTERM);
  INFO(run.err());
  CHECK(fs::exists(dir + "/checkpoints/latest"));
  CHECK_THAT(run.err(), !Contains("were killed"));
}

TEST_CASE("a checkpoint on exit that can't be written is a warning, and the final weights are", "[exit]") {
  const TempFolder folder;
  const std::string dir = folder.file("run"), weights = folder.file("w.safetensors");
  Process run(run_words(dir, {"train.steps=1000000", "train.save_final=" + weights}));
  REQUIRE(soon([&] { return rows_in(dir) > 0; }));
  std::ofstream(dir + "/checkpoints") << "a file is in the place of the folder";
  stop(run, dir, SIGTERM);
  INFO(run.err());
  CHECK_THAT(run.err(), Contains("no checkpoint of step ") && Contains("was written: "));
  CHECK(fs::file_size(weights) > 1000);
}

TEST_CASE("a second Ctrl-C within a second of the first ends the ranks at once", "[exit]") {
  const TempFolder folder;
  const std::string dir = folder.file("run");
  // Only the terminal's own signals count as keys, so script gives the run one.
  if (std::system("python3 -c 'import pty' 2>/dev/null") != 0) {
    WARN("skipped: there is no python3");
    return;
  }
  std::string words;
  for (const std::string& word : run_words(dir, {"train.steps=1000000", "--comm", "shm"})) words += ", '" + word + "'";
  std::ofstream(folder.file("keys.py"))
      << "import os, pty, time\n"
         "pid, fd = pty.fork()\n"
         "if pid == 0:\n"
         "  os.execv('" +
             ddhost_program() + "', ['ddhost'" + words +
             "])\n"
             "rows = '" +
             dir +
             "/metrics.jsonl'\n"
             "while not os.path.exists(rows) or os.path.getsize(rows) < 4000: time.sleep(0.01)\n"
             "os.kill(pid, 19)\n"  // so that both keys arrive while it can't end
             "os.write(fd, b'\\x03')\n"
             "time.sleep(0.1)\n"
             "os.kill(pid, 18)\n"
             "os.write(fd, b'\\x03')\n"
             "said = b''\n"
             "try:\n"
             "  while True:\n"
             "    more = os.read(fd, 65536)\n"
             "    if not more: break\n"
             "    said += more\n"
             "except OSError: pass\n"
             "open('" +
             folder.file("said") +
             "', 'wb').write(said)\n"
             "os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n";
  const int status = std::system(("TERM=xterm python3 " + folder.file("keys.py")).c_str());
  INFO(read_text(folder.file("said")));
  CHECK(WEXITSTATUS(status) == 130);
}
