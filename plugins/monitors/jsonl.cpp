// SPDX-License-Identifier: Apache-2.0
//
// jsonl: metrics.jsonl in the run's folder, one JSON object a line:
//
//   {"step":1,"loss":4.2,"grad_norm":1.5,"lr":0.001,"step_ms":12,"tokens_per_s":3072,"skipped":false,"loss_scale":1}
//   {"step":1,"val_loss":4.1}                                  an evaluation
//   {"summary":{...}}                                          the last line of a run that did not fail
//
// A number that is not finite is written as null. If several programs take turns, each row has a "program".
//
// What happened between rows is in events.jsonl, which a run without events lacks. A resumed run appends to it:
//
//   {"event":"checkpoint","step":100,"time":"2026-11-26T13:01:50Z","text":"/runs/a/checkpoints/step-100"}
//   {"event":"failed","step":130,"time":...,"text":"rank 1 ..."}
//   {"event":"resumed","step":100,"time":...,"text":"/runs/a/checkpoints/step-100"}
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "ddh/sdk/monitor.hpp"
#include "event_text.hpp"
#include "number_text.hpp"
#include "repeated_evaluation.hpp"

namespace {

std::string quoted(const char* text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Jsonl final : public ddh::Monitor {
 public:
  using Monitor::Monitor;

  void begin(const ddh_monitor_args& args) override {
    const std::string path = std::string(args.run_dir) + "/metrics.jsonl";
    events_path_ = std::string(args.run_dir) + "/events.jsonl";
    resumed_after_ = args.resumed_after;
    if (resumed_after_ == 0) {
      remove_events();
      file_ = ddh::OutputFile(path);
    } else {
      file_ = ddh::OutputFile::continued(path, [&](std::string_view line) { return is_before(line); });
    }
  }

  void row(const ddh_row& row) override {
    if (std::exchange(is_first_, false) && repeats_evaluation(row, resumed_after_)) {
      const std::string path = file_.path();
      file_ = ddh::OutputFile();  // it can be open once
      file_ = ddh::OutputFile::continued(
          path, [&](std::string_view line) { return is_before(line) && !is_evaluation(line, resumed_after_); });
    }
    std::string line = ddh::str("{\"step\":", row.step);
    for (const ddh_row_value& value : values(row))
      line += ddh::str(',', quoted(value.name), ':', number_text(value, "null"));
    if (row.program != nullptr) line += ddh::str(",\"program\":", quoted(row.program));
    file_.write(ddh::str(line, "}\n"));
  }

  void event(const ddh_event& event) override {
    const std::string name = event_name(event.kind);
    if (name.empty()) return;
    if (event.kind == DDH_EVENT_FAILED && event.step == 0) return;  // such a run leaves no file
    if (!events_)
      events_ = ddh::OutputFile::continued(events_path_, [](std::string_view line) {
        return nlohmann::json::accept(line);  // the end of a run that was killed may be damaged
      });
    events_->write(ddh::str("{\"event\":", quoted(name.c_str()), ",\"step\":", event.step,
                            ",\"time\":", quoted(utc_text().c_str()), ",\"text\":", quoted(event.text), "}\n"));
  }

  void end(const char* summary) override { file_.write(ddh::str("{\"summary\":", summary, "}\n")); }

 private:
  // Whether a line of the part before stays.
  [[nodiscard]] bool is_before(std::string_view line) const {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    return row.is_object() && row.value("step", int64_t{0}) > 0 && row["step"] <= resumed_after_;
  }
  static bool is_evaluation(std::string_view line, int64_t step) {
    const nlohmann::json row = nlohmann::json::parse(line);
    const auto items = row.items();
    return row["step"] == step &&
           std::any_of(items.begin(), items.end(), [](const auto& item) { return item.key().starts_with("val_"); });
  }

  // Of a run before, which never reached a checkpoint.
  void remove_events() const {
    std::error_code ec;
    if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(events_path_, ec))) return;
    std::filesystem::remove(events_path_, ec);
    if (ec)
      ddh::fail(DDH_PERMISSION_DENIED, "cannot remove '", events_path_,
                "', the events of the run before: ", ec.message(), "; give another run.dir");
  }

  ddh::OutputFile file_;
  int64_t resumed_after_ = 0;
  bool is_first_ = true;  // the next row
  std::string events_path_;
  std::optional<ddh::OutputFile> events_;  // from the first event on
};

}  // namespace

DDH_CXX_PLUGIN(Jsonl, monitor, "jsonl", "0.1.0",
               "metrics.jsonl: one JSON object for each row; events.jsonl: checkpoints, resumes, a failure", nullptr,
               nullptr, DDH_CAP_IN_PROCESS);
