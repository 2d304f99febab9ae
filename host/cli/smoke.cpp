// SPDX-License-Identifier: Apache-2.0
//
// cli/smoke.cpp: `ddhost smoke`: everything that a long run will do, in a short one: two steps of each program, an evaluation,
// a checkpoint, the same step again after a resume under two other strategies, and the export of the weights. Each part is a
// child process, as for `ddhost compare`.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string_view>

#include "base/durable.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/measured_runs.hpp"
#include "config/words.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/text.hpp"
#include "report/past_run.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr int64_t kStepsOfProgram = 2;
constexpr const char* kMark = "smoke.json";
// Options of the run that a smoke test chooses itself.
constexpr std::array<std::string_view, 8> kReplaced = {"run.dir",          "run.name",     "run.resume",
                                                       "train.steps",      "train.epochs", "train.save_final",
                                                       "train.eval_every", "monitor.page"};
// Seconds on two idle cores, for each parameter: the processor time of the GPT of 124 million was 37 s, that of the ViT of 86
// million 29 s. Who waits longer than the other number of seconds is told before.
constexpr double kSecondsOfParameter = 20 / 124.5e6, kUntoldSeconds = 30;
// A micro-batch is made smaller until its activations take no more than this, and then counts once a step. Where one sample
// takes more, samples are made shorter, if the model can do that.
constexpr double kActivationBytes = 128e6;
constexpr int64_t kLeastBatch = 2;  // statistics of one sample may have no variance

struct Facts {
  Json config;        // effective
  std::string model;  // as the model calls itself
  uint64_t parameters = 0;
  int64_t ranks = 1, steps = 0;
  bool evaluates = false, has_short_samples = false;
  bool needs_evaluations = false;       // options go by their values
  std::vector<std::string> strategies;  // others than the run's, that can be planned: the least memory first
  std::vector<std::string> changes;     // options that make the run short
};

// A part of the smoke test that failed.
struct PartFailed {
  int code;
  std::string sentence;
};

class Smoke {
 public:
  // With `--json` the sentences go to stderr.
  Smoke(const CommandLine& line, std::ostream& out)
      : line_(line), out_(line.json ? std::cerr : out), json_out_(out), folder_(line.compare.out) {}

  int run() {
    make_folder();
    const int code = try_all();
    if (line_.json) {
      Json json = {{"is_ok", code == 0}, {"folder", folder_.string()}, {"parts", parts_}};
      if (!sentence_.empty()) json["sentence"] = sentence_;
      json_out_ << json_document(json);
    }
    return code;
  }

 private:
  int try_all() {
    const StopSignals signals;
    try {
      part("configuration and plan", [this] { return look(); });
      announce();
      const fs::path trained = folder_ / "trained";
      part(ddh::str("train ", facts_.steps, " steps, ", facts_.evaluates ? "evaluate, " : "", "save"),
           [&] { return train(trained); });
      for (const std::string& strategy : facts_.strategies)
        part("resume under " + one_line(strategy), [&] { return resume(trained, strategy); });
      part("export the weights", [&] { return export_weights(trained); });
    } catch (const PartFailed& failed) {
      if (StopSignals::seen() != 0) {
        print_sentence(ddh::str("a signal ended the smoke test; the logs of its parts are in ", folder_.string()));
        return 128 + StopSignals::seen();
      }
      sentence_ = failed.sentence;
      print_sentence(failed.sentence);
      return failed.code;
    }
    remove_weights();
    out_ << "all parts ended well; their logs are in " << one_line(folder_.string()) << '\n';
    return 0;
  }

  void make_folder() const {
    std::error_code ec;
    if (fs::exists(folder_, ec) && !fs::is_empty(folder_, ec) && !fs::exists(folder_ / kMark, ec))
      ddh::fail(DDH_ALREADY_EXISTS, "'", folder_.string(), "' exists and holds no smoke test; give another --out");
    fs::remove_all(folder_, ec);
    fs::create_directories(folder_, ec);
    if (ec)
      ddh::fail(DDH_PERMISSION_DENIED, "'", folder_.string(), "' can't be made: ", ec.message(),
                "; give another --out");
    replace_durably(fs::absolute(folder_) / kMark, "{}\n");
  }

  // Does a part, which returns what it found, and tells its time.
  template <class Do>
  void part(const std::string& name, Do&& run_part) {
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      parts_.back()["seconds"] = passed;
      return duration(passed);
    };
    const auto say_failed = [&] {
      out_ << (StopSignals::seen() != 0 ? "stopped " : "FAILED  ") << name << ": after " << seconds() << '\n'
           << std::flush;
    };
    parts_.push_back({{"name", name}, {"is_ok", false}});
    try {
      const std::string found = run_part();
      parts_.back()["is_ok"] = true;
      parts_.back()["found"] = found;
      out_ << "ok      " << name << ": " << found << (found.empty() ? "" : ", ") << seconds() << '\n' << std::flush;
    } catch (const PartFailed& failed) {
      say_failed();
      throw;
    } catch (const ddh::Error& error) {
      say_failed();
      throw PartFailed{1, plain_text(error.what())};
    }
  }

  // Runs a child; its files in the folder are named after `name`.
  void child(const std::string& name, const std::vector<std::string>& words) const {
    const ChildEnd end = run_child(words, folder_ / (name + ".out"), folder_ / (name + ".err"));
    if (end.code == 0) return;
    throw PartFailed{end.code,
                     end.sentence.empty() ? ddh::str("the child ended with exit code ", end.code) : end.sentence};
  }
  [[nodiscard]] Json json_of(const std::string& name) const { return read_json(read_whole(folder_ / (name + ".out"))); }

  // Those of the run, but for its length, its folder and its files.
  [[nodiscard]] std::vector<std::string> words_of(const char* command) const {
    std::vector<std::string> words = {command};
    const std::vector<std::string> files = words_of_files(line_);
    words.insert(words.end(), files.begin(), files.end());
    for (const Override& one : line_.overrides)
      if (std::find(kReplaced.begin(), kReplaced.end(), one.key) == kReplaced.end())
        words.push_back(one.key + "=" + one.text);
    words.emplace_back("monitor.page=");  // also one in the file: its port may be in use by the run itself
    return words;
  }

  std::string look() {
    std::vector<std::string> words = words_of("train");
    words.emplace_back("--dry-run");
    child("config", words);
    facts_.config = json_of("config");
    words = words_of("plan");
    words.insert(words.end(), {"--all-strategies", "--json"});
    child("plan", words);
    const Json plan = json_of("plan");
    facts_.model = plan.value("model", std::string());
    facts_.ranks = plan.value("world_size", int64_t{1});
    const std::string own = own_strategy();
    double activations = 0;
    std::vector<std::pair<uint64_t, std::string>> others;
    for (const Json& one : plan.value("plans", Json::array())) {
      if (!one.contains("largest_rank")) continue;
      facts_.parameters = one.value("parameters", uint64_t{0});
      const std::string strategy = one.value("strategy", std::string());
      if (strategy == own) activations = one["largest_rank"].value("act", 0.0);
      if (strategy != own) others.emplace_back(one["largest_rank"].value("total", uint64_t{0}), strategy);
    }
    // The two that differ most from one another.
    std::sort(others.begin(), others.end());
    if (!others.empty()) facts_.strategies.push_back(others.front().second);
    if (others.size() > 1) facts_.strategies.push_back(others.back().second);
    shorten(plan.value("programs", Json::array()), activations);
    return ddh::str(one_line(facts_.model), ", ", facts_.parameters, " parameters on ",
                    counted(static_cast<uint64_t>(facts_.ranks), "rank"));
  }

  // The strategy's name: the configuration has the path and the name.
  [[nodiscard]] std::string own_strategy() const {
    const std::string plugin = facts_.config["strategy"].value("plugin", std::string());
    const std::string name = plugin.substr(plugin.find_last_of(":/") + 1);
    return name.ends_with(".so") ? name.substr(0, name.size() - 3) : name;
  }

  // Two steps of each program, and a batch that is quick.
  void shorten(const Json& programs, double activations) {
    const Json& train = facts_.config["train"];
    if (const Json phases = train.value("phases", Json::array()); !phases.empty()) {
      facts_.changes = {"train.phases=" + short_phases(phases).dump(), "train.cycles=1"};
    } else {
      facts_.steps = kStepsOfProgram * std::max<int64_t>(1, static_cast<int64_t>(programs.size()));
      facts_.changes = {ddh::str("train.steps=", facts_.steps)};
    }
    facts_.evaluates = std::any_of(programs.begin(), programs.end(),
                                   [](const Json& program) { return program.value("is_evaluated", false); });
    const Json best = facts_.config["checkpoint"].value("best", Json::object());
    facts_.needs_evaluations = train.value("patience", int64_t{0}) > 0 ||
                               !best.value("metric", std::string()).empty() ||
                               facts_.config["schedule"].value("type", std::string()) == "plateau";
    const auto set = [this](const char* key, const auto& value) {
      facts_.changes.push_back(ddh::str(key, "=", value));
    };
    set("train.eval_every_epochs", 0);
    set("train.eval_every", facts_.evaluates ? facts_.steps : 0);
    set("train.eval_batches", facts_.ranks);
    set("checkpoint.every", std::max<int64_t>(1, facts_.steps - 1));
    for (const char* key : {"checkpoint.every_epochs", "checkpoint.every_minutes", "train.update_every"}) set(key, 0);
    set("checkpoint.at_phase_end", "false");
    set("checkpoint.keep_last", 2);
    if (!facts_.config["profile"].value("steps", std::string()).empty()) set("profile.steps", "");
    if (facts_.config["run"].value("sample_tokens", int64_t{0}) > 4) set("run.sample_tokens", 4);
    shorten_batch(activations);
  }

  void shorten_batch(double activations) {
    const Json given = facts_.config["data"].value("micro_batch", Json());
    if (activations <= kActivationBytes || !given.is_number_integer()) return;
    const auto micro_batch = std::max<int64_t>(1, given.get<int64_t>());
    const double of_sample = activations / static_cast<double>(micro_batch);
    if (of_sample > kActivationBytes) shorten_samples();
    const int64_t least = facts_.has_short_samples ? 1 : std::min(kLeastBatch, micro_batch);
    const auto most = std::max(least, static_cast<int64_t>(kActivationBytes / of_sample));
    facts_.changes.push_back(ddh::str("data.micro_batch=", std::min(micro_batch, most)));
    facts_.changes.emplace_back("train.grad_accum_steps=1");
  }

  // By the options for which a table has a short value.
  void shorten_samples() {
    for (const auto& [name, value] : facts_.config["model"].items()) {
      const std::string key = "model." + name, brief = cost_of("option", key).smoke;
      if (brief.empty() || !value.is_number_integer()) continue;
      if (const auto now = value.get<int64_t>(); now != 0 && now <= std::atoll(brief.c_str())) continue;
      facts_.changes.push_back(key + "=" + brief);
      facts_.has_short_samples = true;
    }
  }

  // The first phase of each program with two steps. An update program has no steps of its own.
  Json short_phases(const Json& phases) {
    Json out = Json::array();
    std::set<std::string> seen;
    for (Json phase : phases) {
      if (!phase.is_object() || !seen.insert(phase.value("program", Json()).dump()).second) continue;
      if (phase.contains("steps") || phase.contains("epochs")) {
        phase.erase("epochs");
        phase["steps"] = kStepsOfProgram;
        facts_.steps += kStepsOfProgram;
      }
      out.push_back(std::move(phase));
    }
    return out;
  }

  void announce() const {
    out_ << "this trains " << counted(static_cast<uint64_t>(facts_.steps), "step")
         << (facts_.evaluates ? ", evaluates" : "") << ", saves, resumes before the last step under "
         << (facts_.strategies.empty() ? "no other strategy" : one_line(facts_.strategies.front()))
         << (facts_.strategies.size() > 1 ? " and " + one_line(facts_.strategies.back()) : "")
         << ", and exports the weights, in " << one_line(folder_.string()) << '\n';
    for (const std::string& change : facts_.changes)
      if (change.starts_with("data.micro_batch=") || change.starts_with("model."))
        out_ << "the work of a step is less than in the run: " << one_line(change) << '\n';
    const double expected = kSecondsOfParameter * static_cast<double>(facts_.parameters);
    if (expected > kUntoldSeconds)
      out_ << "expected time: about " << duration(expected) << " on two cores, in proportion to the parameters\n";
    out_ << std::flush;
  }

  std::vector<std::string> train_words(const fs::path& run) const {
    std::vector<std::string> words = words_of("train");
    words.insert(words.end(), facts_.changes.begin(), facts_.changes.end());
    words.push_back("run.dir=" + fs::absolute(run).string());
    words.emplace_back("train.save_final=");
    return words;
  }

  [[nodiscard]] static PastRun run_of(const fs::path& run) {
    PastRun past = read_past_run(run, Rows::all);
    if (!past.loss)
      ddh::fail(DDH_DATA_LOSS, "'", run.string(), "' has no rows of JSON with a loss of its last step; leave ",
                "monitor.plugins out, or add the monitor of JSON lines that it names by default");
    return past;
  }

  std::string train(const fs::path& to) {
    child("train", train_words(to));
    const PastRun past = run_of(to);
    const bool has_evaluation = std::any_of(past.curves.begin(), past.curves.end(), [](const Curve& curve) {
      return curve.name().find("val_") != std::string::npos;
    });
    if (facts_.evaluates && !has_evaluation)
      ddh::fail(DDH_DATA_LOSS, "'", to.string(), "' has no row of an evaluation; look into its log.txt");
    return ddh::str("loss ", short_number(*past.loss));
  }

  std::string resume(const fs::path& trained, const std::string& strategy) const {
    const fs::path run = folder_ / ("resumed-" + strategy);
    std::vector<std::string> words = train_words(run);
    const fs::path from = trained / "checkpoints" / ddh::str("step-", std::max<int64_t>(1, facts_.steps - 1));
    words.insert(words.end(), {"--strategy", strategy, "--resume", fs::absolute(from).string(), "checkpoint.every=0",
                               "run.sample_tokens=0"});
    if (facts_.evaluates && !facts_.needs_evaluations)
      words.insert(words.end(), {"train.eval_every=0", "--resume-allow", "train.eval_every"});
    child("resumed-" + strategy, words);
    const PastRun before = run_of(trained), after = run_of(run);
    if (*before.loss == *after.loss) return "step " + std::to_string(after.last_step) + " has the same bits";
    return ddh::str("the loss of step ", after.last_step, " is ", number_text(*after.loss), " and was ",
                    number_text(*before.loss));
  }

  std::string export_weights(const fs::path& trained) const {
    const fs::path to = folder_ / "exported";
    child("export", {"export", trained.string(), to.string()});
    uint64_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(to))
      if (entry.is_regular_file()) bytes += entry.file_size();
    return bytes_text(bytes);
  }

  // The logs and rows stay.
  void remove_weights() const {
    std::error_code ec;
    fs::remove_all(folder_ / "exported", ec);
    fs::remove_all(folder_ / "trained" / "checkpoints", ec);
  }

  const CommandLine& line_;
  std::ostream &out_, &json_out_;
  const fs::path folder_;
  Json parts_ = Json::array();
  std::string sentence_;  // of the part that failed
  Facts facts_;
};

}  // namespace

int smoke_run(const CommandLine& line, std::ostream& out) { return Smoke(line, out).run(); }

}  // namespace ddhost
