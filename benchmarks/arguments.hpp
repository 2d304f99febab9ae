// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/arguments.hpp: the command line of a benchmark.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "ddh/sdk/plugin.hpp"

namespace ddhost::bench {

// `what` names the number in the error, which is that `text` is no whole number from `least` to `most`.
inline int64_t whole_number(std::string_view what, std::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    ddh::fail(DDH_INVALID_ARGUMENT, what, " '", text, "' is no whole number from ", least, " to ", most, "; give one");
  return value;
}

// The exit code of main: calls run(), or prints `usage` for --help. An error is a sentence, and the code 2 for wrong arguments,
// else 1.
template <class Run>
int run_program(const char* name, const char* usage, int argc, char** argv, Run&& run) {
  if (argc > 1 && std::string_view(argv[1]) == "--help") {
    std::printf("usage: %s %s\n", name, usage);
    return 0;
  }
  try {
    return run();
  } catch (const ddh::Error& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return error.code() == DDH_INVALID_ARGUMENT ? 2 : 1;
  } catch (const std::exception& error) {  // that of LibTorch has a stack below its first line
    const std::string text = error.what();
    std::fprintf(stderr, "%s: %s\n", name, text.substr(0, text.find('\n')).c_str());
    return 1;
  }
}

}  // namespace ddhost::bench
