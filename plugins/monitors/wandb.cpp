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
#include <utility>

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

// The first `most` characters of UTF-8.
std::string first_characters(const std::string& text, size_t most) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; };
  size_t count = 0, at = 0;
  for (; at < text.size(); ++at)
    if (begins(text[at]) && ++count > most) break;
  return text.substr(0, at);
}

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
    resumed_after_ = args.resumed_after;
    const std::string given = word("id", "WANDB_RUN_ID", kAnyLength, "\"/\\#?%: ");
    if (given.size() > kMostOfId)
      ddh::fail(DDH_INVALID_ARGUMENT, "the id '", first_characters(given, 20),
                "...' of monitor.wandb.id or WANDB_RUN_ID ", "has more than ", kMostOfId,
                " bytes, and a folder is named after it; give a shorter one");
    read_given();
    const fs::path root = run_dir_ / "wandb";
    std::error_code ec;
    if (fs::exists(root, ec) && !fs::is_directory(root, ec))
      ddh::fail(DDH_INVALID_ARGUMENT, "'", root.string(), "' is no folder; remove it, or give another run.dir");
    if (fs::is_symlink(root, ec))
      ddh::fail(DDH_INVALID_ARGUMENT, "'", root.string(), "' is a symbolic link, so its runs may be those of another ",
                "folder; remove it, or give another run.dir");
    const std::optional<wandb_files::Earlier> earlier = wandb_files::find_earlier(root, given);
    id_ = earlier ? earlier->id : given.empty() ? random_id() : given;
    folder_ = earlier ? earlier->folder : root / (std::string(wandb_files::kFolder) + date_text() + "-" + id_);
    // A run that begins anew was killed before its first checkpoint, and none of its rows stays.
    if (earlier && resumed_after_ > 0) read_part_before();
  }

  void row(const ddh_row& row) override {
    if (row.step != row_step_) write_row();
    // An evaluation that was interrupted belongs to the row of the part before.
    if (!has_begun() && row.step == resumed_after_ && !last_row_.item().empty()) row_ = std::exchange(last_row_, {});
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
    if (event.kind == DDH_EVENT_FAILED && !has_begun()) return;  // such a run leaves no file
    pb::Record line;
    line.mutable_output_raw()->set_output_type(1);
    set_time(*line.mutable_output_raw()->mutable_timestamp(), Clock::now());
    line.mutable_output_raw()->set_line(utf8(ddh::str("step ", event.step, ": ", name, ": ", event.text, "\n")));
    if (event.kind == DDH_EVENT_RESUMED && !has_begun()) {
      resumed_ = line;  // the run may fail before a row, and then keeps the rows of the part before
      return;
    }
    write_row();
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
  static constexpr int64_t kNoStep = -1;
  // The limits of W&B, and one so that names of files are not too long.
  static constexpr size_t kMostOfId = 200, kMostOfName = 128, kMostOfTag = 64, kAnyLength = SIZE_MAX;

  // An option, or the variable of the environment. `most`: characters that W&B takes. `wrong`: those that it refuses.
  std::string word(const char* option, const char* variable, size_t most, std::string_view wrong = "") const {
    std::string text = options.text(option);
    const char* const of_environment = std::getenv(variable);
    const bool is_given = !text.empty() || of_environment == nullptr;
    const std::string source = is_given ? ddh::str("monitor.wandb.", option) : std::string(variable);
    text = utf8(is_given ? text : of_environment);
    if (text.find_first_of(wrong) != std::string::npos)
      ddh::fail(DDH_INVALID_ARGUMENT, source, " '", text, "' has a character that W&B does not take there, one of ",
                wrong, "; leave it out");
    require_short(source, text, most);
    return text;
  }

  static void require_short(const std::string& source, const std::string& text, size_t most) {
    if (text.size() == first_characters(text, most).size()) return;
    ddh::fail(DDH_INVALID_ARGUMENT, source, " '", first_characters(text, 20), "...' has more than the ", most,
              " characters that W&B takes; give a shorter one");
  }

  // What the options or the environment say of the run. It is for a resumed run, too, which otherwise keeps what it had.
  void read_given() {
    given_.set_project(word("project", "WANDB_PROJECT", kMostOfName, "/\\#?%:"));
    given_.set_entity(word("entity", "WANDB_ENTITY", kMostOfName));
    given_.set_run_group(word("group", "WANDB_RUN_GROUP", kMostOfName));
    given_.set_display_name(word("name", "WANDB_NAME", kMostOfName));
    given_.set_notes(word("notes", "WANDB_NOTES", kAnyLength));
    std::istringstream tags(word("tags", "WANDB_TAGS", kAnyLength));
    for (std::string tag; std::getline(tags, tag, ',');) {
      require_short("the tag of the run in W&B", tag, kMostOfTag);
      if (!tag.empty()) given_.add_tags(tag);
    }
  }

  double runtime(Clock::time_point now) const { return seconds(now - begin_) + runtime_before_; }

  // Whether there is something to record, so the file of the part before may be replaced.
  [[nodiscard]] bool has_begun() const { return queue_ || !row_.item().empty(); }

  [[nodiscard]] std::string path() const { return wandb_files::file_in(folder_, id_); }

  // Times go on from the last row, without the pause between the parts.
  void read_part_before() {
    wandb_files::Kept is_kept(resumed_after_, kNoStep);
    bool is_past = false;  // all that stays was read
    const auto damage =
        wandb_files::for_each_record(path(), [&](const pb::Record& record, const std::string& /*bytes*/) {
          is_past = is_past || (record.has_history() && record.history().step().num() > resumed_after_);
          if (!is_kept(record)) return true;
          goes_on_ = true;
          num_ = std::max(num_, record.num());
          for (const pb::Item& item : record.history().item())
            if (item.key() == "_runtime") runtime_before_ = std::atof(item.value_json().c_str());
          if (record.has_history() && record.history().step().num() == resumed_after_) last_row_ = record.history();
          return true;
        });
    if (!damage || is_past) return;
    keep_as_ = path() + ".damaged";
    host.log(DDH_LOG_WARN, "'", path(), "' is damaged at byte ", *damage,
             ", and records behind that are missing in W&B's ", "run; the damaged file will be '", keep_as_,
             "'; metrics.jsonl has all rows");
  }

  void copy_part_before() {
    wandb_files::Kept is_kept(resumed_after_, row_step_ == resumed_after_ ? resumed_after_ : kNoStep);
    wandb_files::for_each_record(path(), [&](pb::Record& record, const std::string& bytes) {
      if (!is_kept(record)) return true;
      if (record.has_run()) set_given(*record.mutable_run());
      writer_->put(record.has_run() ? record.SerializeAsString() : bytes);
      return true;
    });
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
    if (!queue_) open();
    record.set_num(++num_);
    queue_->put([this, bytes = record.SerializeAsString()] { writer_->put(bytes); });
  }

  void open() {
    writer_.emplace(folder_, id_);
    if (goes_on_) copy_part_before();
    writer_->publish(keep_as_);
    queue_.emplace([this](const std::function<void()>& run_all) {
      run_all();
      writer_->flush();
    });
    if (goes_on_)
      write_config();
    else
      write_begin();
    if (resumed_) write(*resumed_);
    resumed_.reset();
  }

  void set_given(pb::Run& run) const {
    if (given_.tags_size() > 0) run.clear_tags();
    run.MergeFrom(given_);  // what is empty changes nothing
  }

  void write_begin() {
    pb::Record header, record;
    header.mutable_header()->mutable_version_info()->set_producer(std::string(wandb_files::kProducer));
    write(header);
    pb::Run& run = *record.mutable_run();
    run.set_run_id(id_);
    run.set_display_name(first_characters(utf8(run_dir_.filename().string()), kMostOfName));
    set_given(run);
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
  std::string config_, id_;
  pb::Run given_;
  int64_t resumed_after_ = 0;
  bool goes_on_ = false;  // in the file of a part before
  std::string keep_as_;   // new name of its file, if that is damaged
  pb::Items last_row_;    // of the part before, if it is of step `resumed_after_`
  int64_t num_ = 0, row_step_ = kNoStep;
  pb::Items row_, system_;  // not written yet
  std::optional<pb::Record> resumed_;
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
