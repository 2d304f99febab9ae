// SPDX-License-Identifier: Apache-2.0
//
// wandb: the run as W&B (Weights & Biases) keeps one that is not sent yet, in wandb/offline-run-DATE-ID of the run's folder.
// `wandb sync FOLDER` sends it. Nothing is sent before.
//
//   history        a row; the values of a step and of its evaluation are one row, "program/name" if several programs take turns
//   summary        the last value of each name, and at the end the summary of the run
//   config         the effective configuration
//   system         the values of a row that are about the device
//   log            a line for each event; a failure is an alert, too
//
// A resumed run goes on in its file, under its id. A thread writes, so a slow disk slows no step (ddh/sdk/write_queue.hpp).
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>

#include "ddh/sdk/monitor.hpp"
#include "ddh/sdk/options.hpp"
#include "ddh/sdk/write_queue.hpp"
#include "event_text.hpp"
#include "number_text.hpp"
#include "wandb.pb.h"
#include "wandb_files.hpp"

namespace {

namespace fs = std::filesystem;
namespace pb = ddhost::wandb;
using Json = nlohmann::json;
using Clock = std::chrono::system_clock;

std::string json_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Texts of messages are UTF-8, or no reader takes the message.
std::string utf8(const std::string& text) { return Json::parse(json_text(text)).get<std::string>(); }

// As Python's json reads numbers that JSON lacks.
std::string json_number(const ddh_row_value& value) {
  const char* const infinite = value.value > 0 ? "Infinity" : "-Infinity";
  return number_text(value, std::isnan(value.value) ? "NaN" : infinite);
}

// Names that begin with _ are W&B's own: _step, _runtime.
std::string name_of(const std::string& name) { return utf8(name.starts_with('_') ? "metric" + name : name); }

std::string random_id() {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::random_device random;
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string out;
  for (int i = 0; i < 8; ++i) out += kLetters[letter(random)];
  return out;
}

// "20261126_130150", as in the names of W&B's folders.
std::string date_text() {
  const std::time_t now = Clock::to_time_t(Clock::now());
  std::tm parts{};
  std::array<char, 32> text{};
  if (::localtime_r(&now, &parts) != nullptr) std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &parts);
  return text.data();
}

void set_time(pb::Timestamp& to, Clock::time_point time) {
  const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  to.set_seconds(nanos / 1'000'000'000);
  to.set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
}

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// In place of the item of the same name.
void set_item(pb::Items& items, const std::string& key, const std::string& json) {
  for (pb::Item& item : *items.mutable_item()) {
    if (item.key() != key) continue;
    item.set_value_json(json);
    return;
  }
  pb::Item& item = *items.add_item();
  item.set_key(key);
  item.set_value_json(json);
}

class Wandb final : public ddh::Monitor {
 public:
  using Monitor::Monitor;

  void begin(const ddh_monitor_args& args) override {
    run_dir_ = args.run_dir;
    config_ = args.config;
    const std::string given = word("id", "WANDB_RUN_ID", "\"/\\#?%: ");
    project_ = word("project", "WANDB_PROJECT", "/\\#?%:");
    const fs::path root = run_dir_ / "wandb";
    std::error_code ec;
    if (fs::exists(root, ec) && !fs::is_directory(root, ec))
      ddh::fail(DDH_INVALID_ARGUMENT, "'", root.string(), "' is no folder; remove it, or give another run.dir");
    std::optional<wandb_files::Earlier> earlier = wandb_files::find_earlier(root);
    if (earlier && !given.empty() && given != earlier->id) earlier.reset();
    id_ = earlier ? earlier->id : given.empty() ? random_id() : given;
    folder_ = earlier ? earlier->folder : root / (std::string(wandb_files::kFolder) + date_text() + "-" + id_);
    // A run that begins anew was killed before its first checkpoint, and none of its rows stays.
    if (earlier && args.resumed_after > 0) kept_ = wandb_files::kept_records(earlier->records, args.resumed_after);
    if (!kept_.empty()) continue_time();
  }

  void row(const ddh_row& row) override {
    if (row.step != row_step_) write_row();
    row_step_ = row.step;
    const std::string prefix = row.program == nullptr ? "" : std::string(row.program) + "/";
    const Clock::time_point now = Clock::now();
    std::array<char, 40> time{};
    std::snprintf(time.data(), time.size(), "%.6f", seconds(now.time_since_epoch()));
    set_item(row_, "_step", std::to_string(row.step));
    set_item(row_, "_timestamp", time.data());
    set_item(row_, "_runtime", std::to_string(runtime(now)));
    for (const ddh_row_value& value : values(row)) {
      const std::string name = value.name;
      set_item(name.starts_with("device_") ? system_ : row_,
               name_of(name.starts_with("device_") ? name : prefix + name), json_number(value));
    }
    row_time_ = now;
  }

  // A checkpoint and a failure wait for the rows before them.
  void event(const ddh_event& event) override {
    const std::string name = event_name(event.kind);
    if (name.empty()) return;
    if (event.kind == DDH_EVENT_FAILED && !queue_ && row_.item().empty()) return;  // such a run leaves no file
    write_row();
    pb::Record line;
    line.mutable_output_raw()->set_output_type(1);
    set_time(*line.mutable_output_raw()->mutable_timestamp(), Clock::now());
    line.mutable_output_raw()->set_line(utf8(ddh::str("step ", event.step, ": ", name, ": ", event.text, "\n")));
    write(line);
    if (event.kind == DDH_EVENT_FAILED) {
      pb::Record alert, summary;
      alert.mutable_alert()->set_title(name);
      alert.mutable_alert()->set_text(utf8(event.text));
      alert.mutable_alert()->set_level("ERROR");
      write(alert);
      set_item(*summary.mutable_summary(), "failure", json_text(event.text));
      write(summary);
      write_exit(1);
    }
    queue_->drain();
  }

  void end(const char* text) override {
    write_row();
    pb::Record summary;
    set_item(*summary.mutable_summary(), "summary", text);
    write(summary);
    write_exit(0);
    queue_->drain();
    host.log(DDH_LOG_INFO, "`wandb sync ", folder_.string(), "` sends the run to W&B");
  }

 private:
  // An option, or the variable of the environment. `wrong`: characters that W&B refuses.
  std::string word(const char* option, const char* variable, std::string_view wrong = "") const {
    std::string text = options.text(option);
    const char* const of_environment = std::getenv(variable);
    const bool is_given = !text.empty() || of_environment == nullptr;
    if (!is_given) text = of_environment;
    if (text.find_first_of(wrong) != std::string::npos)
      ddh::fail(DDH_INVALID_ARGUMENT, is_given ? ddh::str("monitor.wandb.", option) : std::string(variable), " '",
                utf8(text), "' has a character that W&B does not take there, one of ", wrong, "; leave it out");
    return utf8(text);
  }

  double runtime(Clock::time_point now) const { return seconds(now - begin_) + runtime_before_; }

  // Of the parts of the run before, without the pauses between them.
  void continue_time() {
    for (const std::string& bytes : kept_) {
      pb::Record record;
      if (!record.ParseFromString(bytes)) continue;
      num_ = std::max(num_, record.num());
      for (const pb::Item& item : record.history().item())
        if (item.key() == "_runtime") runtime_before_ = std::atof(item.value_json().c_str());
    }
  }

  void write_row() {
    if (row_.item().empty()) return;
    pb::Record history, summary;
    *history.mutable_history() = row_;
    history.mutable_history()->mutable_step()->set_num(row_step_);
    write(history);
    *summary.mutable_summary() = row_;
    write(summary);
    if (!system_.item().empty()) {
      pb::Record stats;
      stats.mutable_stats()->set_stats_type(0);
      set_time(*stats.mutable_stats()->mutable_timestamp(), row_time_);
      *stats.mutable_stats()->mutable_item() = system_.item();
      write(stats);
    }
    row_.Clear();
    system_.Clear();
  }

  void write_exit(int32_t code) {
    pb::Record record;
    record.mutable_exit()->set_exit_code(code);
    record.mutable_exit()->set_runtime(static_cast<int32_t>(runtime(Clock::now())));
    write(record);
  }

  // The first record opens the file, so a run that fails before leaves an older file as it was.
  void write(pb::Record& record) {
    if (!queue_) {
      writer_.emplace(folder_, id_, kept_);
      queue_.emplace();
      if (kept_.empty())
        write_begin();
      else
        write_config();
      kept_.clear();
    }
    record.set_num(++num_);
    queue_->put([this, bytes = record.SerializeAsString()] { writer_->add(bytes); });
  }

  void write_begin() {
    pb::Record header, record;
    header.mutable_header()->mutable_version_info()->set_producer(std::string(wandb_files::kProducer));
    write(header);
    pb::Run& run = *record.mutable_run();
    run.set_run_id(id_);
    run.set_project(project_);
    run.set_entity(word("entity", "WANDB_ENTITY"));
    run.set_run_group(word("group", "WANDB_RUN_GROUP"));
    const std::string name = word("name", "WANDB_NAME");
    run.set_display_name(name.empty() ? utf8(run_dir_.filename().string()) : name);
    run.set_notes(word("notes", "WANDB_NOTES"));
    std::istringstream tags(word("tags", "WANDB_TAGS"));
    for (std::string tag; std::getline(tags, tag, ',');)
      if (!tag.empty()) run.add_tags(tag);
    std::array<char, 256> host_name{};
    if (::gethostname(host_name.data(), host_name.size() - 1) == 0) run.set_host(utf8(host_name.data()));
    set_time(*run.mutable_start_time(), begin_);
    *run.mutable_config() = config_items();
    write(record);
  }

  // It may differ from that of the part before.
  void write_config() {
    pb::Record record;
    *record.mutable_config() = config_items();
    write(record);
  }

  pb::Items config_items() const {
    pb::Items items;
    const Json config = Json::parse(config_);
    for (const auto& [section, values] : config.items()) set_item(items, utf8(section), json_text(values));
    set_item(items, "run_dir", json_text(run_dir_.string()));
    return items;
  }

  const Clock::time_point begin_ = Clock::now();
  double runtime_before_ = 0;
  fs::path run_dir_, folder_;
  std::string config_, id_, project_;
  std::vector<std::string> kept_;  // records of the part before, until the file is open
  int64_t num_ = 0, row_step_ = 0;
  pb::Items row_, system_;  // not written yet
  Clock::time_point row_time_;
  std::optional<wandb_files::Writer> writer_;
  std::optional<ddh::WriteQueue> queue_;  // after the writer: its thread ends first
};

constexpr ddh::Option kOptions[] = {
    {"project", "string", R"("")", "",
     "project of W&B; empty: WANDB_PROJECT of the environment, or that of `wandb sync`"},
    {"entity", "string", R"("")", "", "team or user of W&B; empty: WANDB_ENTITY, or that of `wandb sync`"},
    {"group", "string", R"("")", "", "group of runs in the project; empty: WANDB_RUN_GROUP, or none"},
    {"name", "string", R"("")", "", "name of the run in W&B; empty: WANDB_NAME, or that of the run's folder"},
    {"notes", "string", R"("")", "", "a text about the run; empty: WANDB_NOTES, or none"},
    {"tags", "string", R"("")", "", "words by commas, by which W&B finds runs; empty: WANDB_TAGS, or none"},
    {"id", "string", R"("")", "",
     "id of the run in its project, for example of a run that W&B has; empty: WANDB_RUN_ID, that of the part before, "
     "or a new one"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Wandb, monitor, "wandb", "0.1.0", "wandb/offline-run-...: a run for `wandb sync`",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS);
