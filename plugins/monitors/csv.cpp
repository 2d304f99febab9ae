// SPDX-License-Identifier: Apache-2.0
//
// csv: tables in the run's folder with a line of column names, then one line for each row:
//
//   metrics.csv        step,loss,grad_norm,lr,step_ms,tokens_per_s,skipped,loss_scale
//   metrics_eval.csv   step,val_loss
//
// Programs of a model report different values. If several take turns, each has its own files:
// metrics.<program>.csv. A number that is not finite is nan.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "ddh/sdk/monitor.hpp"
#include "number_text.hpp"
#include "repeated_evaluation.hpp"

namespace {

// A name as part of a file name; different names stay different.
std::string file_part(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    std::array<char, 4> code{c};
    if (!is_plain)
      std::snprintf(code.data(), code.size(), "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += code.data();
  }
  return out;
}

// A cell, quoted if necessary (RFC 4180).
std::string cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out.append(c == '"' ? 2 : 1, c);
  return out.append(1, '"');
}

// The names of Csv::row: metrics.csv, metrics_eval.csv, metrics.PROGRAM.csv, metrics_eval.PROGRAM.csv.
bool is_table_name(std::string_view name) {
  if (!name.starts_with("metrics") || !name.ends_with(".csv")) return false;
  name = name.substr(7, name.size() - 11);
  if (name.starts_with("_eval")) name.remove_prefix(5);
  return name.empty() || name.starts_with('.');
}

std::vector<std::filesystem::path> tables_in(const std::string& folder) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (is_table_name(entry.path().filename().string())) out.push_back(entry.path());
  return out;
}

bool has_columns(std::string_view line) { return line == "step" || line.starts_with("step,"); }

// Leaves alone what no run wrote.
void remove_table(const std::filesystem::path& path) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, ec))) return;
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line) || !has_columns(line)) return;
  std::filesystem::remove(path, ec);
  if (ec)
    ddh::fail(DDH_PERMISSION_DENIED, "cannot remove '", path.string(), "', a table of the run before: ", ec.message(),
              "; give another run.dir");
}

class Csv final : public ddh::Monitor {
 public:
  using Monitor::Monitor;

  void begin(const ddh_monitor_args& args) override {
    folder_ = args.run_dir;
    resumed_after_ = args.resumed_after;
    // All tables, because one that gets no row, or a late one, must not keep rows that this run does not have.
    for (const std::filesystem::path& table : tables_in(folder_)) {
      if (resumed_after_ > 0)
        tables_[table.string()] = continued(table.string(), resumed_after_);
      else
        remove_table(table);
    }
  }

  void row(const ddh_row& row) override {
    if (std::exchange(is_first_, false) && repeats_evaluation(row, resumed_after_))
      for (auto& [path, table] : tables_)
        if (is_of_evaluations(path)) {
          table = Table();  // a file can be open once
          table = continued(path, resumed_after_ - 1);
        }
    for (auto& [path, table] : tables_) table.file.cut();
    std::string columns = "step", line = std::to_string(row.step);
    for (const ddh_row_value& value : values(row)) {
      columns += ddh::str(',', cell(value.name));
      line += ddh::str(',', number_text(value, "nan"));
    }
    const std::string program = row.program == nullptr ? "" : ddh::str('.', file_part(row.program));
    const std::string path =
        ddh::str(folder_, row.kind == DDH_ROW_EVAL ? "/metrics_eval" : "/metrics", program, ".csv");
    Table& table = tables_[path];
    if (table.columns.empty()) {
      table = {ddh::OutputFile(path), columns};
      table.file.write(columns + "\n");
    }
    if (table.columns != columns)
      ddh::fail(DDH_FAILED_PRECONDITION, "'", path, "' has the columns ", table.columns, ", and step ", row.step,
                " has ", columns, "; use the monitor jsonl for rows of changing values");
    table.file.write(line + "\n");
  }

 private:
  struct Table {
    ddh::OutputFile file;
    std::string columns;
  };

  static bool is_of_evaluations(const std::string& path) {
    return std::filesystem::path(path).filename().string().starts_with("metrics_eval");
  }

  // The table with the rows up to the step.
  static Table continued(const std::string& path, int64_t last_step) {
    Table table;
    table.file = ddh::OutputFile::continued(path, [&](std::string_view line) {
      if (table.columns.empty()) {
        if (!has_columns(line))
          ddh::fail(DDH_DATA_LOSS, "'", path, "' does not begin with column names; move it away to begin a new table");
        table.columns = line;
        return true;
      }
      return std::atoll(std::string(line).c_str()) <= last_step;
    });
    return table;
  }

  std::string folder_;
  int64_t resumed_after_ = 0;
  bool is_first_ = true;                 // the next row
  std::map<std::string, Table> tables_;  // by path
};

}  // namespace

DDH_CXX_PLUGIN(Csv, monitor, "csv", "0.1.0", "metrics.csv: a table with one line for each row", nullptr, nullptr,
               DDH_CAP_IN_PROCESS);
