// SPDX-License-Identifier: Apache-2.0
//
// prometheus: the newest values of a run in the text format of Prometheus, for the textfile collector of node_exporter:
//
//   # TYPE ddhost_loss gauge
//   ddhost_loss{run="gpt-ddp"} 1.884
//   ddhost_val_loss{run="gpt-ddp"} 1.91
//   ddhost_step{run="gpt-ddp"} 500
//   ddhost_running{run="gpt-ddp"} 1
//   ddhost_row_seconds{run="gpt-ddp"} 1795629600      when the newest row was written, seconds since 1970
//   ddhost_last_checkpoint_step{run="gpt-ddp"} 400    from the first checkpoint on, as the next
//   ddhost_last_checkpoint_seconds{run="gpt-ddp"} 1795629500
//   ddhost_failed{run="gpt-ddp"} 0                    1: the run ended by an error
//
// The collector reads files that end in .prom, and refuses times beside values, so the time is a value of its own. A run that
// was killed still says that it is running; its ddhost_row_seconds stands still.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "ddh/sdk/monitor.hpp"
#include "ddh/sdk/options.hpp"
#include "latest_text.hpp"

namespace {

// [a-zA-Z0-9_], as names of metrics take it.
std::string plain_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    out += is_plain ? c : '_';
  }
  return out;
}

std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

double seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

class Prometheus final : public ddh::Monitor {
 public:
  using Monitor::Monitor;
  ~Prometheus() override {
    if (file_ == nullptr || has_ended_) return;
    try {
      set("running", "", 0);  // it failed
      write();
    } catch (const ddh::Error&) {  // the run has its error
    }
  }

  void begin(const ddh_monitor_args& args) override {
    run_ = std::filesystem::path(args.run_dir).filename().string();
    const std::string folder = options.text("folder");
    const std::string path = folder.empty() ? ddh::str(args.run_dir, "/metrics.prom")
                                            : ddh::str(folder, "/ddhost_", plain_name(run_), ".prom");
    std::error_code ec;
    if (!folder.empty() && !std::filesystem::is_directory(folder, ec))
      ddh::fail(DDH_NOT_FOUND, "monitor.prometheus.folder '", folder,
                "' is no folder; make it, or leave the option out");
    file_ = std::make_unique<LatestText>(path);
    set("ranks", "", args.world_size);
    set("running", "", 1);
    set("failed", "", 0);
    set("step", "", static_cast<double>(args.resumed_after));
    set("row_seconds", "", seconds_since_1970());
    write();
  }

  void row(const ddh_row& row) override {
    const std::string program = row.program == nullptr ? "" : row.program;
    for (const ddh_row_value& value : values(row)) set(value.name, program, value.value);
    set("step", "", static_cast<double>(row.step));
    set("row_seconds", "", seconds_since_1970());
    write();
  }

  void event(const ddh_event& event) override {
    if (event.kind == DDH_EVENT_FAILED) set("failed", "", 1);  // the destructor writes it
    if (event.kind != DDH_EVENT_CHECKPOINT && event.kind != DDH_EVENT_RESUMED) return;
    set("last_checkpoint_step", "", static_cast<double>(event.step));
    if (event.kind == DDH_EVENT_CHECKPOINT) set("last_checkpoint_seconds", "", seconds_since_1970());
    write();
  }

  void end(const char* /*summary*/) override {
    set("running", "", 0);
    write();
    has_ended_ = true;
    file_.reset();  // waits until the file has it
  }

 private:
  void set(const std::string& name, const std::string& program, double value) {
    values_[plain_name(name)][program] = value;
  }

  void write() {
    std::string text;
    for (const auto& [name, of_programs] : values_) {
      text += ddh::str("# TYPE ddhost_", name, " gauge\n");
      for (const auto& [program, value] : of_programs)
        text += ddh::str("ddhost_", name, "{run=\"", label_value(run_), "\"",
                         program.empty() ? "" : ddh::str(",program=\"", label_value(program), "\""), "} ",
                         number_text(value), "\n");
    }
    file_->set(std::move(text));
  }

  std::string run_;
  std::map<std::string, std::map<std::string, double>> values_;  // by name and program
  std::unique_ptr<LatestText> file_;
  bool has_ended_ = false;
};

constexpr ddh::Option kOptions[] = {
    {"folder", "string", R"("")", R"("x-path": true)",
     "folder of node_exporter's textfile collector; empty: metrics.prom in the run's folder"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Prometheus, monitor, "prometheus", "0.1.0", "metrics.prom: the newest values, for Prometheus",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS);
