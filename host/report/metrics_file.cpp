// SPDX-License-Identifier: Apache-2.0
#include "report/metrics_file.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr size_t kMostLine = size_t{16} << 20;  // the summary of 1,024 ranks has less than 1 MiB

// The descriptor of an InputFile.
class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& file) : fd_(ddh::InputFile(file.string()).release()) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }
  [[nodiscard]] ssize_t read(char* to, size_t bytes) const { return ::read(fd_, to, bytes); }

 private:
  int fd_;
};

// Calls `on_line` for each line that is complete, until it returns false. Returns whether the file ends in the middle of
// one. A line that is too long is given as an empty one.
template <class OnLine>
bool read_lines(const std::filesystem::path& file, OnLine&& on_line) {
  const Descriptor in(file);
  std::vector<char> part(size_t{1} << 20);
  std::string line;
  bool is_long = false;
  for (;;) {
    const ssize_t n = in.read(part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      ddh::fail(DDH_UNAVAILABLE, "'", file.string(), "' can't be read: ", std::strerror(errno), "; check the disk");
    if (n == 0) return !line.empty() || is_long;
    for (size_t at = 0, all = static_cast<size_t>(n); at < all;) {
      const char* const begin = part.data() + at;
      const auto* const newline = static_cast<const char*>(std::memchr(begin, '\n', all - at));
      const size_t length = newline == nullptr ? all - at : static_cast<size_t>(newline - begin);
      is_long = is_long || line.size() + length > kMostLine;
      if (is_long)
        line.clear();
      else
        line.append(begin, length);
      at += length + 1;
      if (newline == nullptr) continue;
      if (!on_line(line)) return false;
      line.clear();
      is_long = false;
    }
  }
}

Json parsed(const std::string& line) { return Json::parse(line, nullptr, /*allow_exceptions=*/false); }

// Nothing if it is no row.
std::optional<MetricsRow> row_of(const Json& json) {
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
  MetricsRow row;
  row.step = json["step"].get<int64_t>();
  for (const auto& [name, value] : json.items()) {
    if (name == "program" && value.is_string()) row.program = value.get<std::string>();
    if (name == "step") continue;
    if (value.is_number()) row.values.emplace_back(name, value.get<double>());
    if (value.is_boolean()) row.values.emplace_back(name, value.get<bool>() ? 1.0 : 0.0);
    if (value.is_null()) row.values.emplace_back(name, std::numeric_limits<double>::quiet_NaN());
  }
  return row;
}

}  // namespace

bool is_evaluation(std::string_view line) { return line.find("\"step_ms\":") == std::string_view::npos; }

std::optional<MetricsRow> row_of_line(const std::string& line, Json& summary) {
  const Json json = parsed(line);
  if (!json.is_object() || !json.contains("summary")) return row_of(json);
  summary = json["summary"];
  return std::nullopt;
}

std::filesystem::path rows_file(const std::filesystem::path& folder) {
  constexpr std::string_view kStem = "metrics.json";
  std::error_code ec;
  for (std::filesystem::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
    const std::string name = at->path().filename().string();
    std::error_code unused;
    if (name.starts_with(kStem) && name.size() <= kStem.size() + 1 && at->is_regular_file(unused)) return at->path();
  }
  return {};
}

const double* MetricsRow::find(std::string_view name) const {
  for (const auto& [known, value] : values)
    if (known == name) return &value;
  return nullptr;
}

MetricsEnd read_metrics(const std::filesystem::path& file, Rows rows,
                        const std::function<bool(const MetricsRow&)>& on_row) {
  MetricsEnd end;
  std::error_code ec;
  if (file.empty() || !std::filesystem::exists(file, ec)) {
    end.is_there = false;
    return end;
  }
  std::string held;  // with Rows::few: the last row of a step
  size_t steps = 0;
  const auto give = [&](const std::string& line) {
    Json summary(Json::value_t::discarded);
    const std::optional<MetricsRow> row = row_of_line(line, summary);
    if (!summary.is_discarded()) {
      end.summary = std::move(summary);
      end.text = line;
      return true;
    }
    if (!row) ++end.unreadable;
    return !row || on_row(*row);
  };
  const auto give_held = [&] { return held.empty() || give(std::exchange(held, "")); };
  end.is_cut = read_lines(file, [&](const std::string& line) {
    if (line.empty()) {
      ++end.unreadable;
      return true;
    }
    if (rows == Rows::all || is_evaluation(line)) return (rows == Rows::all || give_held()) && give(line);
    if (++steps <= 2) return give(line);
    held = line;
    return true;
  });
  give_held();
  return end;
}

}  // namespace ddhost
