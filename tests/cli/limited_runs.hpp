// SPDX-License-Identifier: Apache-2.0
//
// Runs with a limit of memory. A run that does not fit says what it will take and what is left, so a test can find the least
// limit with which it starts.
#pragma once

#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <regex>
#include <string>

#include "fixtures/harness/ddhost_process.hpp"

namespace ddhost::test {

struct Limited {
  int code = 0;
  std::string err;
  double seconds = 0;
  std::vector<nlohmann::json> losses;  // of each step
  bool has_folder = false;
};

// Starts a run; `setup` limits the child. `limit`: of bytes.
using RunLimited = std::function<Limited(const Words& words, uint64_t limit)>;

template <class Setup>
Limited run_limited(const Words& words, Setup&& setup) {
  const TempFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  Process process(
      joined({"--device", "cpu", "run.quiet=true", "run.sample_tokens=0", "run.dir=" + folder.file("run")}, words),
      setup);
  Limited out;
  out.code = process.wait(std::chrono::seconds(200));
  out.err = process.err();
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  out.has_folder = std::filesystem::exists(folder.file("run"));
  for (const nlohmann::json& step : read_run(folder.path() / "run").steps) out.losses.push_back(step.at("loss"));
  return out;
}

inline Limited run_with_addresses(const Words& words, uint64_t limit) {
  return run_limited(words, [limit] {
    const rlimit addresses{limit, limit};
    setrlimit(RLIMIT_AS, &addresses);
  });
}

// "1.5 MB": in bytes.
inline double bytes_in_text(const std::string& number, const std::string& unit) {
  const std::map<std::string, double> units = {{"bytes", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
  return std::stod(number) * units.at(unit);
}

// The least limit with which a run starts, from the error of one with `low` or, where that suffices because made-up data take
// less, with less. Sizes in the sentence are rounded.
inline uint64_t least_limit(const RunLimited& run, const Words& words, uint64_t low) {
  Limited refused = run(words, low);
  for (int i = 0; refused.code == 0 && i < 5; ++i) refused = run(words, low = low / 5 * 4);
  INFO(refused.err);
  REQUIRE(refused.code == 1);
  std::smatch sizes;
  const std::string number = R"(([\d.]+) (\w+))";
  const std::regex sentence("will take " + number + R"( more \(.*a reserve of )" + number + " for .* has " + number +
                            " of memory left");
  REQUIRE(std::regex_search(refused.err, sizes, sentence));
  const double left = bytes_in_text(sizes[5], sizes[6]);
  REQUIRE(left > 0);
  const double more = bytes_in_text(sizes[1], sizes[2]) + bytes_in_text(sizes[3], sizes[4]) - left;
  return low + static_cast<uint64_t>(more * 1.002) + 1'000'000;
}

// A run that does not fit by `too_little` bytes: it is refused before it takes memory, and --fit starts it with the bits that
// it has without a limit.
inline void check_fitted(const RunLimited& run, const Words& words, uint64_t low, uint64_t too_little) {
  const uint64_t limit = least_limit(run, words, low) - too_little;
  std::string text;
  for (const std::string& word : words) text += word + " ";
  INFO(text << "with " << limit << " bytes");
  const Limited refused = run(words, limit);
  INFO(refused.err);
  CHECK(refused.code == 1);
  CHECK_THAT(refused.err, Catch::Contains("the run does not fit: ") && Catch::Contains("it fits with "));
  CHECK_FALSE(refused.has_folder);
  CHECK(refused.seconds < 15);  // it takes one; the machine may be busy
  const Limited fitted = run(joined(words, {"--fit"}), limit);
  INFO(fitted.err);
  REQUIRE(fitted.code == 0);
  CHECK_THAT(fitted.err, Catch::Contains("--fit: the run starts with ") && !Catch::Contains("other bits"));
  const Limited large = run_limited(words, [] {});
  INFO(large.err);
  REQUIRE(large.code == 0);
  REQUIRE(large.losses.size() >= 2);
  CHECK(fitted.losses == large.losses);
  const size_t at = fitted.err.find("--fit:");
  std::printf("%s\n  refused after %.2f s with %.1f MB; %s\n", text.c_str(), refused.seconds,
              static_cast<double>(limit) / 1e6, fitted.err.substr(at, fitted.err.find('\n', at) - at).c_str());
}

}  // namespace ddhost::test
