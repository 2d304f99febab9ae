// SPDX-License-Identifier: Apache-2.0
#include "survey/answers.hpp"

#include <istream>
#include <memory>
#include <ostream>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "survey/facts.hpp"
#include "survey/wire.hpp"

namespace ddhost {
namespace {

constexpr std::chrono::seconds kLongestMeasurement{20};

Json measured(const Json& question) {
  const WireSpeed speed = measure_wire(parse_endpoint(question.at("at").get<std::string>(), "the other host's address"),
                                       Token::from_hex(question.at("token").get<std::string>()));
  if (!speed.problem.empty()) return {{"problem", speed.problem}};
  return {{"round_trip_s", speed.round_trip_s}, {"bytes_per_s", speed.bytes_per_s}};
}

std::unique_ptr<WireListener> listener(const Json& question) {
  return std::make_unique<WireListener>(
      own_address(question.at("interface").get<std::string>(), question.at("toward").get<std::string>()),
      parse_ports(question.at("ports").get<std::string>()), Token::from_hex(question.at("token").get<std::string>()));
}

Json answer(const Json& question, const std::function<Json()>& devices, std::unique_ptr<WireListener>& wire) {
  try {
    if (question.contains(kFactsQuestion)) return to_json(own_facts(facts_wanted(question.at(kFactsQuestion))));
    if (question.contains("clock")) return seconds_since_1970();
    if (question.contains("devices")) return devices();
    if (question.contains("write")) return write_rate(question.at("write").get<std::string>());
    if (question.contains("measure")) return measured(question.at("measure"));
    if (question.contains("listen")) {
      wire = listener(question.at("listen"));
      return wire->at().text();
    }
    return {{"problem", "another version of the program asks"}};
  } catch (const std::exception& error) {
    return {{"problem", sentence_of(error)}};
  }
}

}  // namespace

void answer_questions(const std::string& first, std::istream& in, std::ostream& out,
                      const std::function<Json()>& devices) {
  std::string line = first;
  do {
    std::unique_ptr<WireListener> wire;
    const Json said = {{"ddhost", answer(read_json(line), devices, wire)}};
    out << json_line(said) << '\n' << std::flush;
    if (wire != nullptr) wire->serve(std::chrono::steady_clock::now() + kLongestMeasurement);
  } while (std::getline(in, line));
}

}  // namespace ddhost
