// SPDX-License-Identifier: Apache-2.0
//
// jsonl: metrics.jsonl in the run's folder, one JSON object a line:
//
//   {"step":1,"loss":4.2,"grad_norm":1.5,"lr":0.001,"step_ms":12,"tokens_per_s":3072,"skipped":false,"loss_scale":1}
//   {"step":1,"val_loss":4.1}                                  an evaluation
//   {"summary":{...}}                                          the last line of a run that did not fail
//
// A number that is not finite is written as null. If several programs take turns, each row has a "program".
#include <nlohmann/json.hpp>

#include "ddh/sdk/monitor.hpp"
#include "number_text.hpp"

namespace {

std::string quoted(const char* text) { return nlohmann::json(text).dump(); }

class Jsonl final : public ddh::Monitor {
 public:
  using Monitor::Monitor;

  void begin(const ddh_monitor_args& args) override {
    const std::string path = std::string(args.run_dir) + "/metrics.jsonl";
    if (args.resumed_after == 0) {
      file_ = ddh::OutputFile(path);
      return;
    }
    file_ = ddh::OutputFile::continued(path, [&](std::string_view line) {
      const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      return row.is_object() && row.value("step", int64_t{0}) > 0 && row["step"] <= args.resumed_after;
    });
  }

  void row(const ddh_row& row) override {
    std::string line = ddh::str("{\"step\":", row.step);
    for (const ddh_row_value& value : values(row))
      line += ddh::str(',', quoted(value.name), ':', number_text(value, "null"));
    if (row.program != nullptr) line += ddh::str(",\"program\":", quoted(row.program));
    file_.write(ddh::str(line, "}\n"));
  }

  void end(const char* summary) override { file_.write(ddh::str("{\"summary\":", summary, "}\n")); }

 private:
  ddh::OutputFile file_;
};

}  // namespace

DDH_CXX_PLUGIN(Jsonl, monitor, "jsonl", "0.1.0", "metrics.jsonl: one JSON object for each row", nullptr, nullptr,
               DDH_CAP_IN_PROCESS);
