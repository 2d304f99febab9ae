// SPDX-License-Identifier: Apache-2.0
//
// Requests to the page of a run, as browsers and as attackers send them, and the addresses at which it may listen.
#include <catch2/catch.hpp>

#include "ddh/sdk/plugin.hpp"
#include "live/address.hpp"
#include "live/request.hpp"

using namespace ddhost;
using What = PageRequest::What;

namespace {

constexpr const char* kToken = "0123456789abcdef0123456789abcdef";

PageRequest read(const std::string& bytes, const std::string& address = "127.0.0.1") {
  return read_request(bytes, kToken, address);
}

// A request for a path behind the token, with these headers.
std::string get(const std::string& path, const std::string& headers = "Host: 127.0.0.1:8000\r\n",
                const std::string& line = "GET ") {
  return line + "/" + kToken + "/" + path + " HTTP/1.1\r\n" + headers + "\r\n";
}

int status_of(const std::string& bytes) {
  const PageRequest request = read(bytes);
  return request.what == What::kRefused ? request.status : 0;
}

}  // namespace

TEST_CASE("the page, its script and its states are served to who knows the token", "[live]") {
  CHECK(read(get("")).what == What::kDocument);
  CHECK(read(get("live.js")).what == What::kScript);
  const PageRequest state = read(get("state?after=17"));
  CHECK(state.what == What::kState);
  CHECK(state.after == 17);
  CHECK(read(get("", "User-Agent: x\r\nhost:\tlocalhost \r\nAccept: */*\r\n")).what == What::kDocument);
  for (const char* host : {"localhost", "LocalHost:1", "127.0.0.1", "[::1]:65535"})
    CHECK(read(get("", std::string("Host: ") + host + "\r\n")).what == What::kDocument);
  CHECK(read(get("", "Host: 127.0.0.2:80\r\n"), "127.0.0.2").what == What::kDocument);
}

TEST_CASE("a request is read when its head is complete", "[live]") {
  const std::string whole = get("state?after=3", "Host: localhost\r\nCookie: a=b\r\n");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) CHECK(read(whole.substr(0, bytes)).what == What::kIncomplete);
  CHECK(read(whole).what == What::kState);
  CHECK(read(whole + "more").what == What::kState);
}

TEST_CASE("names of other hosts are refused: a foreign site's name may lead to this machine", "[live]") {
  for (const char* host : {"evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example",
                           "localhost:80:80", "localhost:", "localhost:8x", "127.0.0.2", "0.0.0.0:8000", "[::]:8000",
                           "user@localhost", "", "127.0.0.1 127.0.0.1"})
    CHECK(status_of(get("", std::string("Host: ") + host + "\r\n")) == 403);
  CHECK(status_of(get("", "")) == 400);
  CHECK(status_of(get("", "Host: localhost\r\nHost: localhost\r\n")) == 400);
}

TEST_CASE("everything else is refused", "[live]") {
  const auto other_path = [](const std::string& path) {
    return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  };
  for (const char* path :
       {"/", "//", "/index.html", "/../../etc/passwd", "/0123456789abcdef0123456789abcdee/", "/0123456789abcdef/",
        "/0123456789ABCDEF0123456789abcdef/", "/%30123456789abcdef0123456789abcdef/"})
    CHECK(status_of(other_path(path)) == 404);
  for (const char* path : {"..", "../", "../../../etc/passwd", "%2e%2e/", "state", "state?after=", "state?after=-1",
                           "state?after=1x", "state?after=99999999999999999999", "live.js?", "LIVE.JS", "/"})
    CHECK(status_of(get(path)) == 404);
  for (const char* method : {"POST ", "HEAD ", "PUT ", "DELETE ", "OPTIONS ", "get ", "G ", " GET "})
    CHECK(status_of(get("", "Host: localhost\r\n", method)) == 405);
  CHECK(status_of("\x16\x03\x01") == 400);  // TLS
  CHECK(status_of("GET /\x7f") == 400);
  CHECK(status_of("\r\n\r\n") == 400);
  CHECK(status_of("GET\r\n\r\n") == 400);
  CHECK(status_of("GET  HTTP/1.1\r\nHost: localhost\r\n\r\n") == 400);
  CHECK(status_of("GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/2\r\nHost: localhost\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1 \r\nHost: localhost\r\n\r\n") == 400);
  CHECK(status_of("GET /\r\n\r\n") == 400);
  for (const char* header : {"Content-Length: 5", "Transfer-Encoding: chunked", "Upgrade: websocket", " folded",
                             "no colon", ": x", "Ho st: localhost", "X: a\nHost: evil", "X: a\rb"})
    CHECK(status_of(get("", std::string("Host: localhost\r\n") + header + "\r\n")) == 400);
  CHECK(status_of(get("", std::string("Host: localhost\r\nX: a\0b\r\n", 25))) == 400);
}

TEST_CASE("a head that is too long is refused before it ends", "[live]") {
  const std::string head = "GET / HTTP/1.1\r\nHost: localhost\r\nX: ";
  CHECK(read(head + std::string(kMostRequestBytes - head.size() - 1, 'a')).what == What::kIncomplete);
  CHECK(status_of(head + std::string(kMostRequestBytes, 'a')) == 431);
  CHECK(status_of(head + std::string(kMostRequestBytes, 'a') + "\r\n\r\n") == 431);
}

TEST_CASE("the page listens on this machine alone", "[live]") {
  CHECK(parse_page_address("127.0.0.1:0").text() == "127.0.0.1:0");
  CHECK(parse_page_address("localhost:8000").text() == "127.0.0.1:8000");
  CHECK(parse_page_address("127.8.9.1:65535").text() == "127.8.9.1:65535");
  CHECK(parse_page_address("[::1]:80").text() == "[::1]:80");
  CHECK(parse_page_address("::1:80").text() == "[::1]:80");
  for (const char* text : {"", ":", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:-1", "127.0.0.1:65536",
                           "127.0.0.1:80 ", "0.0.0.0:80", "[::]:80", "192.168.1.1:80", "example.org:80", "127.1:80",
                           "::ffff:127.0.0.1:80", "\x1b[31m:80"}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_page_address(text), Catch::Contains("127.0.0.1") && Catch::Contains("--page"));
  }
}

TEST_CASE("a port in use is named", "[live]") {
  PageAddress first = parse_page_address("127.0.0.1:0");
  const Fd socket = listen_for_page(first);
  CHECK(first.port != 0);
  PageAddress second = first;
  CHECK_THROWS_WITH(listen_for_page(second), Catch::Contains(first.text()) && Catch::Contains("--page"));
}

TEST_CASE("tokens differ", "[live]") {
  CHECK(random_token().size() == 32);
  CHECK(random_token() != random_token());
}
