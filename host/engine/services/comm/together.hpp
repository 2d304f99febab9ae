// SPDX-License-Identifier: Apache-2.0
//
// engine/services/comm/together.hpp: runs a step of saving or loading on every rank; it fails on all ranks or on none.
#pragma once

#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "engine/services/comm/comm.hpp"

namespace ddhost {

// The error of a rank's part; empty if it did not fail.
using FailureText = std::array<char, 512>;

inline FailureText text_of(const std::string& sentence) {
  FailureText text{};
  std::snprintf(text.data(), text.size(), "%s", sentence.c_str());
  return text;
}

template <class Body>
FailureText failure_of(Body&& body) {
  try {
    body();
  } catch (const std::exception& e) {
    return text_of(sentence_of(e));
  }
  return {};
}

// The failure of the first rank that failed, the same on every rank; empty if none failed. [collective]
inline FailureText first_failure(const Comm& comm, const FailureText& mine, const char* label) {
  std::vector<FailureText> all(static_cast<size_t>(comm.world_size()));
  comm.all_gather_bytes(mine.data(), all.data(), mine.size(), label);
  for (const FailureText& text : all)
    if (text[0] != '\0') return text;
  return {};
}

// Runs a rank's part; all ranks throw if one of them has failed. [collective]
template <class Body>
void together(const Comm& comm, const char* label, Body&& body) {
  const FailureText failure = first_failure(comm, failure_of(std::forward<Body>(body)), label);
  if (failure[0] != '\0') ddh::fail(DDH_RESOURCE_EXHAUSTED, failure.data());
}

// The same of a body that reads a checkpoint, but damage (DDH_DATA_LOSS, DDH_NOT_FOUND) is returned: that of the first rank
// that found some, or "". [collective]
template <class Body>
std::string first_damage(const Comm& comm, const char* label, Body&& body) {
  FailureText damage{};
  together(comm, label, [&] {
    try {
      body();
    } catch (const ddh::Error& error) {
      if (error.code() != DDH_DATA_LOSS && error.code() != DDH_NOT_FOUND) throw;
      damage = text_of(sentence_of(error));
    }
  });
  return first_failure(comm, damage, label).data();
}

}  // namespace ddhost
