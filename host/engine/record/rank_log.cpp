// SPDX-License-Identifier: Apache-2.0
#include "engine/record/rank_log.hpp"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

namespace {

// The text of a line. It may hold a name or a sentence of a plugin, which must not change a terminal.
class ShownText final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& to) override {
    const std::string text = shown_text({message.payload.data(), message.payload.size()});
    to.append(text.data(), text.data() + text.size());
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<ShownText>(); }
};

// Nothing, or what takes the progress line away.
class NoLine final : public spdlog::custom_flag_formatter {
 public:
  explicit NoLine(std::shared_ptr<TerminalLine> line) : line_(std::move(line)) {}
  void format(const spdlog::details::log_msg&, const std::tm&, spdlog::memory_buf_t& to) override {
    const std::string_view text = line_->take();
    to.append(text.data(), text.data() + text.size());
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<NoLine>(line_);
  }

 private:
  std::shared_ptr<TerminalLine> line_;
};

// `pattern` has %* for the text.
std::unique_ptr<spdlog::formatter> line_format(const std::string& pattern) {
  auto format = std::make_unique<spdlog::pattern_formatter>();
  format->add_flag<ShownText>('*').set_pattern(pattern);
  return format;
}

}  // namespace

void LogFailure::note(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (reason_.empty()) reason_ = reason;
}

std::string LogFailure::sentence() const {
  const std::lock_guard lock(mutex_);
  return reason_.empty() ? ""
                         : ddh::str("the log can't be written: ", reason_, "; free some space or give another run.dir");
}

RankLog make_rank_log(const RunPlan& plan, const RunConfig& config, const RankSeat& seat) {
  const bool quiet = config.get<bool>("run.quiet");
  auto console = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  console->set_level(seat.rank == 0 && !quiet ? spdlog::level::info : spdlog::level::warn);
  auto line = std::make_shared<TerminalLine>();
  auto format = std::make_unique<spdlog::pattern_formatter>();
  format->add_flag<NoLine>('!', line).add_flag<ShownText>('*');
  format->set_pattern("%!" + (seat.rank == 0 ? "" : "rank " + std::to_string(seat.rank) + ": ") + "%*");
  console->set_formatter(std::move(format));
  std::vector<spdlog::sink_ptr> sinks = {std::move(console)};
  if (!plan.run_dir.empty()) {
    // Append mode, because all ranks write to one file.
    std::shared_ptr<spdlog::sinks::basic_file_sink_mt> file;
    try {
      file = std::make_shared<spdlog::sinks::basic_file_sink_mt>((plan.run_dir / "log.txt").string(), false);
    } catch (const spdlog::spdlog_ex& error) {
      ddh::fail(DDH_PERMISSION_DENIED, "the log can't be opened: ", error.what(), "; give another run.dir");
    }
    file->set_formatter(line_format("%Y-%m-%d %H:%M:%S.%e rank " + std::to_string(seat.rank) + " %l: %*"));
    sinks.push_back(std::move(file));
  }
  auto log = std::make_shared<spdlog::logger>("rank " + std::to_string(seat.rank), sinks.begin(), sinks.end());
  log->flush_on(spdlog::level::info);
  auto failure = std::make_shared<LogFailure>();
  log->set_error_handler([failure](const std::string& reason) { failure->note(reason); });
  return {std::move(log), std::move(failure), std::move(line)};
}

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't write to stdout: ", std::strerror(errno),
            "; give it a reader or a file on a disk with room");
}

ModelText::ModelText() : ModelText(::isatty(STDOUT_FILENO) != 0) {}

std::string ModelText::next(std::string_view piece) {
  if (!is_for_terminal_) return std::string(piece);
  std::string all = std::exchange(unfinished_, {}) + std::string(piece);
  unfinished_ = all.substr(all.size() - unfinished_bytes(all));
  all.resize(all.size() - unfinished_.size());
  return shown_text(all);
}

std::string ModelText::rest() { return shown_text(std::exchange(unfinished_, {})); }

}  // namespace ddhost
