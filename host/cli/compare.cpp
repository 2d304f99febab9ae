// SPDX-License-Identifier: Apache-2.0
//
// cli/compare.cpp: `ddhost compare`. Each run is a child process, `ddhost train` with a folder of its own below --out. A run
// that is complete there is not repeated, so the same command goes on where it was interrupted.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iostream>

#include "base/durable.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/text.hpp"
#include "report/comparison.hpp"
#include "report/past_run.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr int64_t kProbeSteps = 4, kFewestSteps = 6, kMostSteps = 200;

// While it lives, a signal that ends the program only ends the run that is going on.
class StopSignals {
 public:
  StopSignals() {
    struct sigaction mine {};
    mine.sa_handler = &StopSignals::note;
    for (const int signal : kSignals) ::sigaction(signal, &mine, nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals() {
    for (const int signal : kSignals) ::signal(signal, SIG_DFL);
  }
  [[nodiscard]] static int seen() { return state(); }

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  // Handlers have no argument.
  static volatile std::sig_atomic_t& state() {
    static volatile std::sig_atomic_t signal = 0;
    return signal;
  }
  static void note(int signal) { state() = signal; }
};

struct ChildEnd {
  int code = 0;
  std::string sentence;  // the last line of stderr
  double seconds = 0;
};

// The words of an error, without the program's name.
std::string last_sentence(const fs::path& file) {
  std::string text = ddh::InputFile(file.string()).read(size_t{16} << 20);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t begin = text.rfind("ddhost: ");
  return begin == std::string::npos ? plain_text(text, 400) : plain_text(text.substr(begin + 8), kShownSentence);
}

// Starts this program with other words, and waits for its end. Its output goes to `output`.
ChildEnd run_child(const std::vector<std::string>& words, const fs::path& output) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> all = {"ddhost"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int fd = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    ddh::fail(DDH_PERMISSION_DENIED, "can't write '", output.string(), "': ", std::strerror(errno),
              "; give another --out");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    ::execv("/proc/self/exe", argv.data());
    ::_exit(127);
  }
  ::close(fd);
  if (pid < 0)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't start a process: ", std::strerror(errno), "; close other programs");
  int status = 0;
  bool is_told = false;
  while (::waitpid(pid, &status, 0) != pid) {
    if (errno != EINTR) ddh::fail(DDH_INTERNAL, "can't wait for a run: ", std::strerror(errno));
    // A terminal sends Ctrl-C to the run too; the second signal is a copy, which the run knows.
    if (StopSignals::seen() != 0 && !is_told) ::kill(pid, StopSignals::seen());
    is_told = true;
  }
  ChildEnd end;
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  end.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (end.code != 0) end.sentence = last_sentence(output);
  return end;
}

class Comparison {
 public:
  Comparison(const CommandLine& line, std::ostream& out) : line_(line), args_(line.compare), out_(out) {
    const auto or_one = [](const std::vector<std::string>& list) {
      return list.empty() ? std::vector<std::string>{""} : list;
    };
    for (const std::string& model : or_one(args_.models))
      for (const std::string& size : or_one(args_.sizes))
        for (const std::string& strategy : args_.strategies) cases_.emplace_back().of = {model, size, strategy};
    for (const Override& one : line.overrides) {
      if (one.key == "run.dir" || one.key == "run.name" || one.key == "train.save_final")
        ddh::fail(DDH_INVALID_ARGUMENT, one.key, " can't be given for several runs; leave it out, or give --out");
      if (one.key == "strategy.plugin")
        ddh::fail(DDH_INVALID_ARGUMENT, "compare takes its strategies from --strategies; leave strategy.plugin out");
      if (one.key == "train.steps") steps_given_ = one.text;
    }
  }

  int run() {
    require_settings();
    const StopSignals signals;
    settle_steps();
    for (int64_t round = 0; round < args_.rounds && StopSignals::seen() == 0; ++round) {
      if (round > 0 && elapsed() + round_s_ > args_.budget_s) {
        say(ddh::str("the budget of ", duration(args_.budget_s), " ends after ",
                     counted(static_cast<uint64_t>(round), "round")));
        break;
      }
      run_round(round);
    }
    write_tables();
    if (const int signal = StopSignals::seen(); signal != 0) {
      print_sentence("the comparison was interrupted; the same command goes on with it");
      return 128 + signal;
    }
    return std::all_of(cases_.begin(), cases_.end(), [](const Measured& one) { return one.is_there(); }) ? 0 : 1;
  }

 private:
  void say(const std::string& text) const { std::cerr << text << '\n' << std::flush; }
  [[nodiscard]] double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  [[nodiscard]] fs::path folder_of(size_t at, int64_t round) const {
    return args_.out / "rounds" / ddh::str("case-", at + 1, "-round-", round + 1);
  }

  // The runs in --out must be those of this command.
  void require_settings() {
    Json settings = {{"strategies", args_.strategies}, {"models", args_.models}, {"sizes", args_.sizes}};
    settings["config"] = line_.config_file.string();
    settings["options"] = Json::array();
    for (const Override& one : line_.overrides) settings["options"].push_back(one.key + "=" + one.text);
    settings["steps"] = args_.steps;
    const fs::path file = args_.out / "compare.json";
    std::error_code ec;
    if (fs::exists(file, ec)) {
      Json before = read_json(read_whole(file));
      known_steps_ = before.value("chosen_steps", int64_t{0});
      before.erase("chosen_steps");
      if (before != settings)
        ddh::fail(DDH_ALREADY_EXISTS, "'", args_.out.string(),
                  "' holds a comparison with other settings; give another --out, or remove it");
    } else if (fs::exists(args_.out, ec) && !fs::is_empty(args_.out, ec)) {
      ddh::fail(DDH_ALREADY_EXISTS, "'", args_.out.string(), "' exists and holds no comparison; give another --out");
    }
    fs::create_directories(args_.out / "rounds", ec);
    if (ec)
      ddh::fail(DDH_PERMISSION_DENIED, "'", args_.out.string(), "' can't be made: ", ec.message(),
                "; give another --out");
    settings_ = settings;
    if (!fs::exists(file, ec)) replace_durably(file, settings_.dump(2) + "\n");
  }

  // The number of steps with which all rounds fit into the budget, found with a short run of each model.
  void settle_steps() {
    if (!steps_given_.empty()) {
      steps_ = std::strtoll(steps_given_.c_str(), nullptr, 10);
      if (steps_ <= warm_up(steps_))
        ddh::fail(DDH_INVALID_ARGUMENT, "train.steps=", steps_given_,
                  " leaves no step after the warm-up; give 4 or more");
      return;
    }
    steps_ = args_.steps > 0 ? args_.steps : known_steps_;
    if (steps_ > 0) return;
    double start_s = 0, step_s = 0;
    for (size_t at = 0; at < cases_.size() && StopSignals::seen() == 0; ++at) {
      if (at > 0 && cases_[at].of.group() == cases_[at - 1].of.group()) continue;
      const fs::path folder = args_.out / "rounds" / ddh::str("probe-", at + 1);
      std::error_code ec;
      fs::remove_all(folder, ec);
      const ChildEnd end = run_child(words_of(cases_[at].of, kProbeSteps, folder), log_of(folder));
      const size_t n = static_cast<size_t>(std::count_if(
          cases_.begin(), cases_.end(), [&](const Measured& one) { return one.of.group() == cases_[at].of.group(); }));
      if (end.code != 0) continue;
      Measured probe;
      add_round(probe, folder, 1);
      const double step = probe.step_ms.front() / 1e3;
      step_s += step * static_cast<double>(n);
      start_s += std::max(0.0, end.seconds - step * kProbeSteps) * static_cast<double>(n);
    }
    const double of_round = args_.budget_s * 0.85 / static_cast<double>(args_.rounds) - start_s;
    steps_ = step_s > 0 ? std::clamp(static_cast<int64_t>(of_round / step_s), kFewestSteps, kMostSteps) : kFewestSteps;
    settings_["chosen_steps"] = steps_;
    if (StopSignals::seen() == 0) replace_durably(args_.out / "compare.json", settings_.dump(2) + "\n");
  }

  // The first steps of a run touch memory for the first time, and fill caches.
  static int64_t warm_up(int64_t steps) { return std::clamp(steps / 5, int64_t{2}, int64_t{10}); }

  [[nodiscard]] std::vector<std::string> words_of(const ComparedCase& of, int64_t steps, const fs::path& folder) const {
    std::vector<std::string> words = {"train"};
    if (!line_.config_file.empty()) words.insert(words.end(), {"--config", line_.config_file.string()});
    for (const char* word : {"run.quiet=true", "run.sample_tokens=0", "run.report=false", "train.eval_every=0"})
      words.emplace_back(word);
    for (const Override& one : line_.overrides)
      if (one.key != "model.plugin" && one.key != "train.steps") words.push_back(one.key + "=" + one.text);
    if (!of.model.empty()) words.insert(words.end(), {"--model", of.model});
    if (!of.size.empty()) words.push_back("model.size=" + of.size);
    words.insert(words.end(), {"--strategy", of.strategy, ddh::str("train.steps=", steps), "monitor.every=1"});
    words.push_back("run.dir=" + fs::absolute(folder).string());
    return words;
  }
  static fs::path log_of(const fs::path& folder) { return folder.string() + ".txt"; }

  // Every other round goes backwards, so that a machine that becomes slower is the same for all.
  void run_round(int64_t round) {
    const double begin = elapsed();
    bool has_run = false;
    for (size_t i = 0; i < cases_.size() && StopSignals::seen() == 0; ++i) {
      const size_t at = round % 2 == 0 ? i : cases_.size() - 1 - i;
      if (!cases_[at].problem.empty()) continue;
      has_run = run_one(at, round) || has_run;
    }
    if (has_run) round_s_ = elapsed() - begin;
  }

  // Returns whether a run was started: it may be complete from an earlier command.
  bool run_one(size_t at, int64_t round) {
    Measured& one = cases_[at];
    const fs::path folder = folder_of(at, round);
    std::error_code ec;
    const bool is_done = is_run_folder(folder) && read_past_run(folder, Rows::few).state() == "done";
    if (!is_done) {
      fs::remove_all(folder, ec);
      const ChildEnd end = run_child(words_of(one.of, steps_, folder), log_of(folder));
      if (StopSignals::seen() != 0) return true;
      if (end.code != 0) {
        one.problem = end.sentence.empty() ? ddh::str("its run ended with exit code ", end.code) : end.sentence;
        say(ddh::str(one_line(one.of.group()), " ", one_line(one.of.strategy), ": ", shown_text(one.problem)));
        return true;
      }
    }
    try {
      add_round(one, folder, warm_up(steps_));
      say(ddh::str("round ", round + 1, " of ", args_.rounds, ", ", one_line(one.of.group()),
                   one.of.group().empty() ? "" : " ", one_line(one.of.strategy), ": ",
                   short_number(one.items_per_s.back()), " ", one_line(one.items), "/s",
                   is_done ? " (from an earlier command)" : ""));
    } catch (const ddh::Error& error) {
      one.problem = plain_text(error.what());
    }
    return !is_done;
  }

  void write_tables() const {
    const std::vector<ComparedGroup> groups = compared(cases_);
    replace_durably(args_.out / "compare.md", comparison_markdown(groups));
    replace_durably(args_.out / "compare.csv", comparison_csv(cases_));
    replace_durably(args_.out / "compare.html", comparison_html(groups, cases_));
    if (args_.json) {
      out_ << comparison_json(cases_).dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
      return;
    }
    out_ << comparison_text(groups);
    for (const char* name : {"compare.md", "compare.csv", "compare.html"}) out_ << (args_.out / name).string() << '\n';
  }

  const CommandLine& line_;
  const CompareArgs& args_;
  std::ostream& out_;
  std::vector<Measured> cases_;
  Json settings_;
  std::string steps_given_;
  int64_t steps_ = 0, known_steps_ = 0;
  double round_s_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

int compare_strategies(const CommandLine& line, std::ostream& out) { return Comparison(line, out).run(); }

}  // namespace ddhost
