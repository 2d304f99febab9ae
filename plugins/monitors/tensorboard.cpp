// SPDX-License-Identifier: Apache-2.0
//
// tensorboard: an event file in the run's folder, which `tensorboard --logdir <folder>` shows during the run. Every
// value of a row is a scalar with its name, or "program/name" if several programs take turns. The effective
// configuration, the summary and events ("event/checkpoint") are texts. Scalars are fp32, as in TensorFlow.
#include <unistd.h>

#include <array>
#include <chrono>

#include "ddh/sdk/monitor.hpp"
#include "event.pb.h"
#include "event_text.hpp"
#include "record.hpp"

namespace {

namespace tb = ddhost::tensorboard;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The form of name by which TensorBoard finds event files.
std::string file_name() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"host"};
  return ddh::str("events.out.tfevents.", static_cast<int64_t>(seconds_since_1970()), ".", host.data(), ".",
                  ::getpid());
}

tb::Event event_at(int64_t step) {
  tb::Event event;
  event.set_wall_time(seconds_since_1970());
  event.set_step(step);
  return event;
}

// TensorBoard renders text as Markdown; an indent of four spaces shows it verbatim.
std::string as_code(std::string_view text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

tb::Event text_event(int64_t step, const std::string& tag, std::string_view text) {
  tb::Event event = event_at(step);
  tb::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(tag);
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  value.mutable_metadata()->set_data_class(tb::DATA_CLASS_TENSOR);
  value.mutable_tensor()->set_dtype(tb::DT_STRING);
  value.mutable_tensor()->mutable_tensor_shape();
  value.mutable_tensor()->add_string_val(as_code(text));
  return event;
}

class TensorBoard final : public ddh::Monitor {
 public:
  using Monitor::Monitor;

  void begin(const ddh_monitor_args& args) override {
    file_ = ddh::OutputFile(std::string(args.run_dir) + "/" + file_name());
    config_ = args.config;
    resumed_after_ = args.resumed_after;
  }

  void row(const ddh_row& row) override {
    tb::Event event = event_at(row.step);
    const std::string prefix = row.program == nullptr ? "" : std::string(row.program) + "/";
    for (const ddh_row_value& given : values(row)) {
      tb::Summary::Value& value = *event.mutable_summary()->add_value();
      value.set_tag(prefix + given.name);
      value.set_simple_value(static_cast<float>(given.value));
    }
    write(event);
    last_step_ = row.step;
  }

  // A file without rows stays empty, so a resume without a row is not told.
  void event(const ddh_event& event) override {
    const std::string name = event_name(event.kind);
    if (name.empty()) return;
    if (event.kind == DDH_EVENT_RESUMED)
      resumed_from_ = event.text;
    else if (has_header_)
      write(text_event(event.step, "event/" + name, event.text));
  }

  void end(const char* summary) override { write(text_event(last_step_, "summary", summary)); }

 private:
  // A file without rows stays empty: the run failed before its first step.
  void write_header() {
    tb::Event version = event_at(0);
    version.set_file_version("brain.Event:2");
    file_.write(record::framed(version.SerializeAsString()));
    file_.write(record::framed(text_event(0, "config", config_).SerializeAsString()));
    // Also where the run was not resumed: one that was killed before its first checkpoint begins anew, beside its old file.
    tb::Event session = event_at(resumed_after_ + 1);
    session.mutable_session_log()->set_status(tb::SessionLog::START);
    file_.write(record::framed(session.SerializeAsString()));
    if (!resumed_from_.empty())
      file_.write(record::framed(text_event(resumed_after_ + 1, "event/resumed", resumed_from_).SerializeAsString()));
    has_header_ = true;
  }
  void write(const tb::Event& event) {
    if (!has_header_) write_header();
    file_.write(record::framed(event.SerializeAsString()));
  }

  ddh::OutputFile file_;
  std::string config_, resumed_from_;
  bool has_header_ = false;
  int64_t resumed_after_ = 0;
  int64_t last_step_ = 0;
};

}  // namespace

DDH_CXX_PLUGIN(TensorBoard, monitor, "tensorboard", "0.1.0", "event files for TensorBoard", nullptr, nullptr,
               DDH_CAP_IN_PROCESS);
