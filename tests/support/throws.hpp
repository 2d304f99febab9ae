// SPDX-License-Identifier: Apache-2.0
//
// tests/support/throws.hpp: the sentence that something fails with.
#pragma once

#include <exception>
#include <string>

namespace ddhost::test {

// what() of the exception that `body` throws, "" when it doesn't throw.
template <class Body>
std::string sentence_of(Body&& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace ddhost::test
