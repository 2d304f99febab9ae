// SPDX-License-Identifier: Apache-2.0
#include "engine/record/closing.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/terminal.hpp"
#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/progress_text.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// "033"
std::string octal(char c) {
  std::string out;
  for (const int shift : {6, 3, 0}) out += static_cast<char>('0' + ((static_cast<unsigned char>(c) >> shift) & 7));
  return out;
}

// As a shell reads it, in one line.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:,+@%-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  const bool has_controls = std::any_of(word.begin(), word.end(), [](char c) { return is_control(c); });
  std::string out = has_controls ? "$'" : "'";
  for (const char c : word) {
    if (has_controls && (is_control(c) || c == '\'' || c == '\\'))
      out += ddh::str("\\", octal(c));
    else
      out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

std::string command(const std::vector<std::string>& words) {
  std::string out = quoted(program_invocation_name);  // as the user called it
  for (const std::string& word : words) out += " " + quoted(word);
  return out;
}

std::string time_text(double seconds) { return seconds < 60 ? number_as("%.1f s", seconds) : duration_text(seconds); }

std::string speed_text(const RunClosing& run) {
  const RunOutput::Totals& totals = run.totals;
  const double speed = totals.items_per_s();
  return ddh::str(run.stopped ? "stopped after step " : "trained to step ", run.last_step, " of ", run.step_count, ": ",
                  counted(static_cast<uint64_t>(totals.steps), "step"), " in ", time_text(totals.seconds), "; ",
                  number_as(speed < 100 ? "%.3g" : "%.0f", speed), " ", plain_text(totals.items_name, kShownValue),
                  "/s of all ranks on average, ", number_as("%.1f", totals.mean_step_ms()), " ms a step\n");
}

}  // namespace

std::string shown_path(const std::string& path) {
  std::error_code ec;
  const fs::path relative = fs::path(path).lexically_relative(fs::current_path(ec));
  const bool is_below = !ec && !relative.empty() && *relative.begin() != "..";
  return is_below ? relative.string() : path;
}

std::string resume_command(const std::string& run_dir) {
  return command({"--config", shown_path(run_dir + "/config.json"), "--resume", "auto"});
}

std::string closing_text(const RunClosing& run, size_t columns) {
  const std::string config = shown_path(run.run_dir + "/config.json");
  const bool has_weights = !run.weights.empty() || run.checkpoint_step > 0;
  const std::string weights = shown_path(!run.weights.empty() ? run.weights : run.run_dir);
  std::string out = wrapped(speed_text(run), columns, 2);
  if (!run.weights.empty()) out += "weights: " + weights + "\n";
  if (run.checkpoint_step > 0)
    out += "checkpoint: " + shown_path(ddh::str(run.run_dir, "/checkpoints/step-", run.checkpoint_step)) + "\n";
  if (!has_weights) out += wrapped("weights: not kept; checkpoints and train.save_final are off\n", columns, 2);
  out += "next:\n";
  if (!has_weights && !run.stopped)
    out += "  " + command({"--config", config, "run.dir=", "checkpoint.every_minutes=10"}) + "\n";
  if (has_weights && run.can_evaluate) out += "  " + command({"eval", "--config", config, "--weights", weights}) + "\n";
  if (has_weights && run.can_generate)
    out += "  " + command({"generate", "--config", config, "--weights", weights}) + "\n";
  if (run.checkpoint_step > 0)
    out += "  " + command({"export", shown_path(run.run_dir), shown_path(run.run_dir + "/exported")}) + "\n";
  out += "  " + command({"runs", "show", shown_path(run.run_dir)}) + "\n";
  return out;
}

}  // namespace ddhost
