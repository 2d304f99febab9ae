// SPDX-License-Identifier: Apache-2.0
#include "cli/measured_runs.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <thread>

#include "base/durable.hpp"
#include "base/terminal.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "config/words.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/text.hpp"
#include "report/past_run.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr const char* kEpochs = "train.epochs";  // runs are measured by steps
constexpr const char* kPage = "monitor.page";
constexpr int64_t kProbeSteps = 4, kFewestSteps = 6, kMostSteps = 200;
constexpr const char* kSettings = "compare.json";
// Options of a run that take time or write files beside the steps, and files of a configuration may set them.
constexpr std::array<const char*, 16> kUntimed = {"run.quiet=true",
                                                  "run.sample_tokens=0",
                                                  "run.report=false",
                                                  "run.resume=none",
                                                  "run.known_curve=",
                                                  "profile.steps=",
                                                  "train.eval_every=0",
                                                  "train.eval_every_epochs=0",
                                                  "train.save_final=",
                                                  "checkpoint.every=0",
                                                  "checkpoint.every_epochs=0",
                                                  "checkpoint.every_minutes=0",
                                                  "checkpoint.at_phase_end=false",
                                                  "checkpoint.best.metric=",
                                                  "checkpoint.on_exit=false",
                                                  "launch.max_restarts=0"};
constexpr std::array<int, 3> kStopSignals = {SIGINT, SIGTERM, SIGHUP};

// Handlers have no argument.
volatile std::sig_atomic_t& last_signal() {
  static volatile std::sig_atomic_t signal = 0;
  return signal;
}

void say(const std::string& text) { std::cerr << text << '\n' << std::flush; }

// The last error, without the program's name.
std::string last_sentence(const fs::path& file) {
  std::string text = ddh::InputFile(file.string()).read(size_t{16} << 20);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t begin = text.rfind("ddhost: ");
  return begin == std::string::npos ? plain_text(text, 400) : plain_text(text.substr(begin + 8), kShownSentence);
}

int opened(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0)
    ddh::fail(DDH_PERMISSION_DENIED, "can't write '", file.string(), "': ", std::strerror(errno),
              "; give another --out");
  return fd;
}

Json settings_in(const fs::path& file) {
  try {
    Json settings = read_json(read_whole(file));
    if (settings.is_object()) return settings;
  } catch (const JsonError&) {
    // Said below.
  }
  ddh::fail(DDH_DATA_LOSS, "'", file.string(), "' is damaged; give another --out, or remove its folder");
}

// "0.8M zero2".
std::string name_of(const ComparedCase& of) {
  const std::string name = one_line(of.group() + " " + of.strategy);
  return name.substr(name.find_first_not_of(' '));
}

// What must be the same where a comparison goes on. Files of the same name may have other text.
Json settings_of(const CommandLine& line, const std::vector<ComparedCase>& cases) {
  Json settings;
  for (const ComparedCase& one : cases) settings["cases"].push_back({one.group(), one.name()});
  settings["program"] = DDHOST_VERSION;
  settings["files"] = Json::array();
  const std::vector<std::string> files = words_of_files(line);
  for (size_t i = 0; i < files.size(); ++i)
    settings["files"].push_back(i == 1 ? files[i] + "\n" + read_whole(files[i]) : files[i]);  // behind --config
  settings["options"] = Json::array();
  for (const Override& one : line.overrides) settings["options"].push_back(one.key + "=" + one.text);
  settings["steps"] = line.compare.steps;
  return settings;
}

// What a run prints.
fs::path log_of(const fs::path& folder) { return folder.string() + ".txt"; }

pid_t start(std::vector<std::string> words, const fs::path& output, const fs::path& errors) {
  words.insert(words.begin(), "ddhost");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::error_code ec;
  if (fs::read_symlink("/proc/self/exe", ec).string().ends_with(" (deleted)"))
    ddh::fail(DDH_FAILED_PRECONDITION, "the program was replaced while it ran; start the command again");
  const int out = opened(output), err = errors == output ? ::dup(out) : opened(errors);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    ::execv("/proc/self/exe", argv.data());
    ::_exit(127);
  }
  ::close(out);
  ::close(err);
  if (pid < 0)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't start a process: ", std::strerror(errno), "; close other programs");
  return pid;
}

}  // namespace

StopSignals::StopSignals() {
  struct sigaction mine {};
  mine.sa_handler = [](int signal) { last_signal() = signal; };
  for (const int signal : kStopSignals) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    ::sigaction(signal, &mine, nullptr);
    before_[signal] = before;
  }
}

StopSignals::~StopSignals() {
  for (const auto& [signal, before] : before_) ::sigaction(signal, &before, nullptr);
}

int StopSignals::seen() { return last_signal(); }

ChildEnd run_child(const std::vector<std::string>& words, const fs::path& output, const fs::path& errors) {
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = start(words, output, errors);
  int status = 0;
  bool is_told = false;
  while (::waitpid(pid, &status, WNOHANG) != pid) {
    // A terminal sends Ctrl-C to the run too, which takes a second signal at once for a copy.
    if (StopSignals::seen() != 0 && !is_told) ::kill(pid, StopSignals::seen());
    is_told = StopSignals::seen() != 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ChildEnd end;
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  end.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (end.code != 0) end.sentence = last_sentence(errors);
  return end;
}

void require_own_folder(const fs::path& out) {
  constexpr std::array<std::string_view, 6> kOwn = {"rounds",      kSettings,      "compare.md",
                                                    "compare.csv", "compare.html", "tuned.json"};
  std::error_code ec;
  if (!fs::exists(out, ec)) return;
  for (const auto& entry : fs::directory_iterator(out))
    if (std::find(kOwn.begin(), kOwn.end(), entry.path().filename().string()) == kOwn.end())
      ddh::fail(DDH_ALREADY_EXISTS, "'", out.string(), "' exists and has '", entry.path().filename().string(),
                "', which is of no comparison; give another --out");
}

void choose_folder(CommandLine& line, const std::vector<ComparedCase>& cases) {
  if (!line.compare.has_default_out) return;
  const fs::path first = line.compare.out;
  const Json wanted = settings_of(line, cases);
  const auto is_of_others = [&](const fs::path& file) {
    std::error_code ec;
    if (!fs::exists(file, ec)) return false;
    try {
      Json settings = settings_in(file);
      settings.erase("chosen_steps");
      return settings != wanted;
    } catch (const ddh::Error&) {
      return true;
    }
  };
  for (int n = 2; is_of_others(line.compare.out / kSettings); ++n) line.compare.out = first.string() + ddh::str("-", n);
  if (line.compare.out != first)
    say(ddh::str("'", first.string(), "' holds another comparison; this one is in '", line.compare.out.string(), "'"));
}

void require_known(const std::string& kind, const std::vector<std::string>& wanted,
                   const std::vector<std::string>& names) {
  for (const std::string& name : wanted) {
    if (std::find(names.begin(), names.end(), name) != names.end() || name.find_first_of("/:.") != std::string::npos)
      continue;
    const std::string ours = our_value(kind + ".plugin", name), near = nearest(name, names);
    ddh::fail(DDH_NOT_FOUND, "there is no ", kind, " '", plain_text(name, kShownValue), "'",
              !ours.empty()   ? "; here it is " + ours
              : !near.empty() ? "; did you mean '" + near + "'?"
                              : "; `ddhost list` shows them");
  }
}

std::vector<std::string> words_of_files(const CommandLine& line) {
  std::vector<std::string> words;
  if (!line.config_file.empty()) words = {"--config", line.config_file.string()};
  for (const ForeignChoice& choice : line.foreign) {  // --config knows such a file by its keys
    if (!words.empty())
      ddh::fail(DDH_INVALID_ARGUMENT, "'", words.back(), "' and '", choice.file.string(),
                "' are two files, and this command takes one; `ddhost convert` makes one of ours");
    words = {"--config", choice.file.string()};
    if (!choice.version.empty()) words.insert(words.end(), {"--compat", choice.format + "-" + choice.version});
  }
  return words;
}

std::vector<std::string> words_of_options(const CommandLine& line) {
  std::vector<std::string> words = words_of_files(line);
  for (const Override& one : line.overrides)
    if (one.source != "--model" && one.key != kEpochs && one.key != kPage) words.push_back(one.key + "=" + one.text);
  return words;
}

MeasuredRuns::MeasuredRuns(const CommandLine& line, const std::vector<ComparedCase>& cases)
    : line_(line), args_(line.compare) {
  for (const ComparedCase& one : cases) cases_.emplace_back().of = one;
  for (const Override& one : line.overrides) {
    if (one.key == kEpochs) say(ddh::str(kEpochs, "=", one.text, " is not used: --steps says how long each run is"));
    if (one.key == "run.dir" || one.key == "run.name" || one.key == "train.save_final")
      ddh::fail(DDH_INVALID_ARGUMENT, one.key, " can't be given for several runs; leave it out, or give --out");
    if (one.key == "strategy.plugin")
      ddh::fail(DDH_INVALID_ARGUMENT, "the strategies are those of --strategies; leave strategy.plugin out");
    if (one.key == "train.steps") steps_given_ = one.text;
  }
}

int MeasuredRuns::measure() {
  require_settings();
  settle_steps();
  for (int64_t round = 0; round < args_.rounds && StopSignals::seen() == 0; ++round) {
    if (round > 0 && elapsed() + round_s_ > args_.budget_s) {
      say(ddh::str("the budget of ", duration(args_.budget_s), " ends after ",
                   counted(static_cast<uint64_t>(round), "round")));
      break;
    }
    run_round(round);
  }
  if (const int signal = StopSignals::seen(); signal != 0) {
    print_sentence("interrupted; the same command goes on from here");
    return 128 + signal;
  }
  return 0;
}

double MeasuredRuns::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}
fs::path MeasuredRuns::folder_of(size_t at, int64_t round) const {
  return args_.out / "rounds" / ddh::str("case-", at + 1, "-round-", round + 1);
}

// The runs in --out must be those of this command, of this program, and of files with the same text.
void MeasuredRuns::require_settings() {
  std::vector<ComparedCase> cases;
  for (const Measured& one : cases_) cases.push_back(one.of);
  const Json settings = settings_of(line_, cases);
  require_own_folder(args_.out);
  const fs::path file = args_.out / kSettings;
  std::error_code ec;
  if (fs::exists(file, ec)) {
    Json before = settings_in(file);
    chosen_steps_ = before.value("chosen_steps", Json::object());
    before.erase("chosen_steps");
    if (before != settings || !chosen_steps_.is_object())
      ddh::fail(DDH_ALREADY_EXISTS, "'", args_.out.string(),
                "' holds a comparison with other settings; give another --out, or remove it: rm -r ",
                args_.out.string());
  }
  fs::create_directories(args_.out / "rounds", ec);
  if (ec)
    ddh::fail(DDH_PERMISSION_DENIED, "'", args_.out.string(), "' can't be made: ", ec.message(),
              "; give another --out");
  settings_ = settings;
  if (!fs::exists(file, ec)) replace_durably(fs::absolute(file), json_document(settings_));
}

// The number of steps of each model with which all rounds fit into the budget, found with a short run of each. Models share the
// time of a round, not the number of steps, so that a fast one is measured for as long as a slow one.
void MeasuredRuns::settle_steps() {
  const int64_t given = steps_given_.empty() ? args_.steps : std::strtoll(steps_given_.c_str(), nullptr, 10);
  if (!steps_given_.empty() && given <= warm_up(given))
    ddh::fail(DDH_INVALID_ARGUMENT, "train.steps=", steps_given_, " leaves no step after the warm-up; give 4 or more");
  const bool all_known = std::all_of(cases_.begin(), cases_.end(),
                                     [&](const Measured& one) { return chosen_steps_.contains(one.of.group()); });
  if (given == 0 && !all_known) choose_steps();
  for (const Measured& one : cases_) {
    const Json chosen = chosen_steps_.value(one.of.group(), Json());
    steps_.push_back(given > 0                    ? given
                     : chosen.is_number_integer() ? std::clamp(chosen.get<int64_t>(), kFewestSteps, kMostSteps)
                                                  : kFewestSteps);
  }
}

void MeasuredRuns::choose_steps() {
  std::map<std::string, RoundTime> models;
  for (size_t at = 0; at < cases_.size() && StopSignals::seen() == 0; ++at)
    if (const std::string model = cases_[at].of.group(); !models.contains(model))
      if (const std::optional<RoundTime> time = probe(at)) models[model] = *time;
  double of_round = args_.budget_s * 0.85 / static_cast<double>(args_.rounds);
  for (const auto& [model, time] : models) of_round -= time.start_s;
  for (const auto& [model, time] : models) {
    const double steps = of_round / static_cast<double>(models.size()) / std::max(time.step_s, 1e-6);
    if (!chosen_steps_.contains(model))  // else there may be rounds of it
      chosen_steps_[model] = std::clamp(static_cast<int64_t>(steps), kFewestSteps, kMostSteps);
  }
  settings_["chosen_steps"] = chosen_steps_;
  if (StopSignals::seen() == 0) replace_durably(fs::absolute(args_.out) / kSettings, json_document(settings_));
}

// The times of all runs of the case's model in a round, as a short run of the case has them. nullopt: that run failed.
std::optional<MeasuredRuns::RoundTime> MeasuredRuns::probe(size_t at) const {
  const fs::path folder = args_.out / "rounds" / ddh::str("probe-", at + 1);
  std::error_code ec;
  fs::remove_all(folder, ec);
  const ChildEnd end = run_child(words_of(cases_[at].of, kProbeSteps, folder), log_of(folder), log_of(folder));
  if (end.code != 0) return std::nullopt;
  Measured probe;
  add_round(probe, folder, 1);
  const auto n = static_cast<double>(std::count_if(
      cases_.begin(), cases_.end(), [&](const Measured& one) { return one.of.group() == cases_[at].of.group(); }));
  const double step_s = probe.step_ms.front() / 1e3;
  return RoundTime{n * step_s, n * std::max(0.0, end.seconds - step_s * kProbeSteps)};
}

// The first steps of a run touch memory for the first time, and fill caches.
int64_t MeasuredRuns::warm_up(int64_t steps) { return std::clamp(steps / 5, int64_t{2}, int64_t{10}); }

std::vector<std::string> MeasuredRuns::words_of(const ComparedCase& of, int64_t steps, const fs::path& folder) const {
  std::vector<std::string> words = {"train"};
  words.insert(words.end(), kUntimed.begin(), kUntimed.end());  // what the user's words say counts more
  const std::vector<std::string> options = words_of_options(line_);
  words.insert(words.end(), options.begin(), options.end());
  if (!of.model.empty()) words.insert(words.end(), {"--model", of.model});
  if (!of.size.empty()) words.push_back("model.size=" + of.size);
  words.insert(words.end(), of.options.begin(), of.options.end());
  words.insert(words.end(), {"--strategy", of.strategy, ddh::str("train.steps=", steps), "monitor.every=1"});
  words.push_back(ddh::str(kPage, "="));  // also of the file: it would take time, and its port may be in use
  words.push_back("run.dir=" + fs::absolute(folder).string());
  return words;
}

// Every other round goes backwards, so that a machine that becomes slower is the same for all.
void MeasuredRuns::run_round(int64_t round) {
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
bool MeasuredRuns::run_one(size_t at, int64_t round) {
  Measured& one = cases_[at];
  const fs::path folder = folder_of(at, round);
  std::error_code ec;
  const bool is_done = is_run_folder(folder) && read_past_run(folder, Rows::few).state() == "done";
  if (!is_done) {
    fs::remove_all(folder, ec);
    const ChildEnd end = run_child(words_of(one.of, steps_[at], folder), log_of(folder), log_of(folder));
    if (StopSignals::seen() != 0) return true;
    if (end.code != 0) {
      one.problem = end.sentence.empty() ? ddh::str("its run ended with exit code ", end.code) : end.sentence;
      const auto alike = std::find_if(cases_.begin(), cases_.end(), [&](const Measured& other) {
        return &other != &one && other.problem == one.problem;
      });
      say(ddh::str(name_of(one.of), ": ",
                   alike == cases_.end() ? shown_text(one.problem) : "fails as " + name_of(alike->of)));
      return true;
    }
  }
  try {
    add_round(one, folder, warm_up(steps_[at]));
    say(ddh::str("round ", round + 1, " of ", args_.rounds, ", ", name_of(one.of), ": ",
                 short_number(one.items_per_s.back()), " ", one_line(one.items), "/s",
                 is_done ? " (from an earlier command)" : ""));
  } catch (const ddh::Error& error) {
    one.problem = plain_text(error.what());
  }
  return !is_done;
}

void MeasuredRuns::write_files() const {
  const std::vector<ComparedGroup> groups = compared(cases_);
  replace_durably(fs::absolute(args_.out) / "compare.md", comparison_markdown(groups));
  replace_durably(fs::absolute(args_.out) / "compare.csv", comparison_csv(cases_));
  replace_durably(fs::absolute(args_.out) / "compare.html", comparison_html(groups, cases_));
}

void MeasuredRuns::write_tables(std::ostream& out) const {
  write_files();
  if (args_.json) {
    out << json_document(comparison_json(cases_));
    return;
  }
  out << comparison_text(compared(cases_), terminal_columns(STDOUT_FILENO, SIZE_MAX));
  for (const char* name : {"compare.md", "compare.csv", "compare.html"}) out << (args_.out / name).string() << '\n';
}

}  // namespace ddhost
