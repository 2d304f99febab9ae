// SPDX-License-Identifier: Apache-2.0
//
// tests/support/ddhost_process.hpp: runs the built program as a user would, and reads what it leaves behind.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace ddhost::test {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// A folder that goes with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ddhost-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string ddhost_program() { return std::string(DDHOST_BUILD_DIR) + "/ddhost"; }
inline std::string toy_model() { return std::string(DDHOST_BUILD_DIR) + "/tests/plugins/toy.so"; }

// A running ddhost; killed with the object when it hasn't ended.
class Process {
 public:
  // `setup` runs in the child before exec: limits, a working folder.
  template <class Setup>
  Process(const std::vector<std::string>& args, Setup&& setup) : command_(ddhost_program()) {
    std::vector<std::string> all = {ddhost_program()};
    all.insert(all.end(), args.begin(), args.end());
    for (const std::string& arg : args) command_ += " '" + arg + "'";
    pid_ = fork();
    if (pid_ == 0) {
      redirect("out.txt", STDOUT_FILENO);
      redirect("err.txt", STDERR_FILENO);
      close(STDIN_FILENO);
      setpgid(0, 0);
      setup();
      std::vector<char*> argv;
      for (std::string& arg : all) argv.push_back(arg.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  explicit Process(const std::vector<std::string>& args) : Process(args, [] {}) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ > 0 && !ended_) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  // The exit code, 128 + signal where a signal ended it, or -1 when `limit` ran out (then it is killed).
  int wait(std::chrono::milliseconds limit = std::chrono::seconds(120)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    int status = 0;
    while (!ended_) {
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        ended_ = true;
        code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      } else if (std::chrono::steady_clock::now() > end) {
        kill(-pid_, SIGKILL);
        waitpid(pid_, &status, 0);
        ended_ = true;
        code_ = -1;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    return code_;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string out() const { return read_text(folder_.file("out.txt")); }
  [[nodiscard]] std::string err() const { return read_text(folder_.file("err.txt")); }
  [[nodiscard]] const std::string& command() const { return command_; }

 private:
  void redirect(const char* name, int fd) const {
    const int file = open(folder_.file(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(file, fd);
    close(file);
  }
  TempFolder folder_;
  std::string command_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int code_ = 0;
};

// What a finished run left in its folder.
struct RunRecord {
  std::vector<nlohmann::json> steps;        // objects with "loss"
  std::vector<nlohmann::json> evaluations;  // objects with values of an eval program
  nlohmann::json summary;
  std::string column(const char* key) const {  // one line per step, digits as written
    std::string text;
    for (const nlohmann::json& step : steps) text += step.at(key).dump() + "\n";
    return text;
  }
};
inline RunRecord read_run(const std::filesystem::path& run_dir) {
  RunRecord record;
  std::ifstream in(run_dir / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json object = nlohmann::json::parse(line);
    if (object.contains("summary"))
      record.summary = object["summary"];
    else
      (object.contains("loss") ? record.steps : record.evaluations).push_back(object);
  }
  return record;
}

}  // namespace ddhost::test
