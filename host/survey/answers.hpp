// SPDX-License-Identifier: Apache-2.0
//
// survey/answers.hpp: the host that is asked. A question is a line of JSON; its key says what is asked:
//
//   facts     FactsWanted       Facts
//   clock                       seconds since 1970
//   devices                     a list, by the function that is given
//   write     a folder          bytes per second, or a sentence
//   listen    toward, token     the address; the next connection is answered before the next question
//   measure   at, token         WireSpeed
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "base/json.hpp"

namespace ddhost {

constexpr const char* kFactsQuestion = "facts";

// Answers the first question, and those that follow on `in` until it ends.
void answer_questions(const std::string& first, std::istream& in, std::ostream& out,
                      const std::function<Json()>& devices);

}  // namespace ddhost
