// SPDX-License-Identifier: Apache-2.0
//
// A request to the page of a run. It is served only with the token, the method and one Host header of this machine.
#include <cstdlib>

#include "fuzz/fuzz.hpp"
#include "live/request.hpp"

using namespace ddhost;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string text = fuzz::text_of(data, bytes);
  const PageRequest request = read_request(text, "secret", "127.0.0.1");
  const bool is_served = request.what != PageRequest::What::kIncomplete && request.what != PageRequest::What::kRefused;
  const bool is_allowed = text.starts_with("GET /secret/") && text.find(" HTTP/1.") != std::string::npos &&
                          text.find("\r\n\r\n") != std::string::npos &&
                          (text.find("127.0.0.1") != std::string::npos || text.find("::1") != std::string::npos ||
                           text.find_first_of("lL") != std::string::npos);
  if (is_served && !is_allowed) std::abort();
  if (request.what == PageRequest::What::kRefused && (request.status < 400 || request.status > 499)) std::abort();
  if (request.what == PageRequest::What::kIncomplete && bytes >= kMostRequestBytes) std::abort();
  return 0;
}
