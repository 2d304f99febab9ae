// SPDX-License-Identifier: Apache-2.0
//
// best_loss: a monitor. The file best_loss.txt in the run's folder has a line for each step whose loss is the lowest so
// far.
//
//   ddhost --monitor jsonl,./best_loss.so monitor.best_loss.file=lowest.txt
#include <cstdio>
#include <limits>

#include "ddh/sdk/monitor.hpp"
#include "ddh/sdk/options.hpp"

namespace {

class BestLoss final : public ddh::Monitor {
 public:
  using Monitor::Monitor;

  void begin(const ddh_monitor_args& args) override {
    const std::string path = ddh::str(args.run_dir, '/', options.text("file"));
    if (args.resumed_after == 0) {
      file_ = ddh::OutputFile(path);
      return;
    }
    file_ = ddh::OutputFile::continued(path, [&](std::string_view line) {
      long long step = 0;
      double loss = 0;
      const int found = std::sscanf(std::string(line).c_str(), "step %lld loss %lf", &step, &loss);
      const bool stays = found == 2 && step <= args.resumed_after;
      if (stays) best_ = loss;
      return stays;
    });
  }
  void row(const ddh_row& row) override {
    file_.cut();  // the run has begun, so later lines of the part before go
    if (row.kind != DDH_ROW_STEP || !(row.values[0].value < best_)) return;  // the loss; NaN is not less
    best_ = row.values[0].value;
    file_.write(ddh::str("step ", row.step, " loss ", best_, '\n'));
  }

 private:
  ddh::OutputFile file_;
  double best_ = std::numeric_limits<double>::infinity();
};

constexpr ddh::Option kOptions[] = {
    {"file", "string", R"("best_loss.txt")", "", "name of the file in the run's folder"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(BestLoss, monitor, "best_loss", "0.1.0", "lines of the lowest losses", ddh::kSchemaOf<kOptions>, kNeeds,
               DDH_CAP_IN_PROCESS);
