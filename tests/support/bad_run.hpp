// SPDX-License-Identifier: Apache-2.0
//
// tests/support/bad_run.hpp: runs with a plugin that misbehaves (bad_*.cpp), and what must be true of their end.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>

#include "support/ddhost_process.hpp"

namespace ddhost::test {

using Words = std::vector<std::string>;

struct BadEnd {
  int code = 0;
  double seconds = 0;
  std::string err, command;
};

inline std::string bad_plugin(const std::string& name) {
  return std::string(DDHOST_BUILD_DIR) + "/tests/plugins/" + name + ".so";
}

// Two ranks, a few steps. Ended after `limit` where it does not end by itself (then the code is -1).
inline BadEnd run_bad(const Words& options, const std::string& at_load = "",
                      std::chrono::seconds limit = std::chrono::seconds(25)) {
  const TempFolder folder;
  Words args = {"--nproc", "2", "train.steps=4", "run.quiet=true", "run.dir=" + folder.file("run")};
  if (std::find(options.begin(), options.end(), "--model") == options.end())
    args.insert(args.end(), {"--model", toy_model()});
  args.insert(args.end(), options.begin(), options.end());
  const auto begin = std::chrono::steady_clock::now();
  Process process(args, [&] {
    if (!at_load.empty()) setenv("BAD_LOADING", at_load.c_str(), 1);
  });
  const int code = process.wait(limit);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return {code, taken.count(), process.err(), process.command()};
}

// One sentence that has all the words, a failure's exit code, within seconds.
inline void check_named(const BadEnd& end, const Words& words) {
  INFO(end.command << "\nexit " << end.code << " after " << end.seconds << " s\n" << end.err);
  CHECK(end.code > 0);
  CHECK(end.seconds < 15);
  const size_t last = end.err.rfind("ddhost: ");
  const std::string sentence = last == std::string::npos ? "" : end.err.substr(last);
  for (const std::string& word : words) CHECK_THAT(sentence, Catch::Contains(word));
}

inline Words bad_strategy(const std::string& at, const std::string& fault, const Words& more = {}) {
  Words out = {"--strategy", bad_plugin("bad_strategy"), "strategy.at=" + at, "strategy.fault=" + fault};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}
inline Words bad_model(const std::string& at, const std::string& fault, const Words& more = {}) {
  Words out = {"--model", bad_plugin("bad_model"), "model.at=" + at, "model.fault=" + fault};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}
inline Words bad_optimizer(const std::string& at, const std::string& fault, const Words& more = {}) {
  Words out = {"--optimizer", bad_plugin("bad_optimizer"), "optimizer.at=" + at, "optimizer.fault=" + fault};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

}  // namespace ddhost::test
