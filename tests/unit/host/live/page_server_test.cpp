// SPDX-License-Identifier: Apache-2.0
//
// The server of a run's page: states arrive when they are new, and what clients do has bounds.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "ddh/sdk/plugin.hpp"
#include "live/address.hpp"
#include "live/page_server.hpp"

using namespace ddhost;
using namespace std::chrono_literals;

namespace {

// Its state counts how often it was looked at.
class Counter final : public PageContent {
 public:
  [[nodiscard]] State state() const override { return state_; }
  void refresh() override {
    state_.body =
        std::make_shared<const std::string>(ddh::str("<p>", ++state_.version, "</p>", std::string(bytes, 'x')));
  }
  [[nodiscard]] std::string document() const override { return "document " + *state_.body; }
  [[nodiscard]] std::string_view script() const override { return "script"; }
  // As if one rank were always busy.
  [[nodiscard]] CpuBudget::Ns cpu_time() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
  void end() { state_.has_ended = true; }
  size_t bytes = 0;  // of each state, on top

 private:
  State state_;
};

class Served {
 public:
  explicit Served(size_t bytes = 0, const PageLimits& limits = {})
      : stop_(::eventfd(0, EFD_CLOEXEC)), at_(parse_page_address("127.0.0.1:0")) {
    content.bytes = bytes;
    Fd listener = listen_for_page(at_);
    server = std::make_unique<PageServer>(std::move(listener), "secret", at_.host, content, limits);
    thread_ = std::thread([this] {
      server->serve(stop_.get());
      cpu = CpuBudget::of_this_thread();
    });
  }
  ~Served() { end(); }
  void end() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    REQUIRE(::write(stop_.get(), &one, sizeof one) == sizeof one);
    thread_.join();
  }
  [[nodiscard]] Fd connect() const {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(at_.port);
    ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    const timeval limit{20, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return Fd();
    return socket;
  }
  static void send(const Fd& socket, const std::string& text) {
    static_cast<void>(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL));
  }
  static std::string answer(const Fd& socket) {
    std::string out;
    std::array<char, 65536> part{};
    for (ssize_t n = 0; (n = ::recv(socket.get(), part.data(), part.size(), 0)) > 0;)
      out.append(part.data(), static_cast<size_t>(n));
    return out;
  }
  [[nodiscard]] std::string get(const std::string& path) const {
    const Fd socket = connect();
    send(socket, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return answer(socket);
  }

  Counter content;
  std::unique_ptr<PageServer> server;
  CpuBudget::Ns cpu{};

 private:
  Fd stop_;
  PageAddress at_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("a browser gets the page, its script, and each newer state", "[live]") {
  const Served served;
  CHECK_THAT(served.get("/secret/"), Catch::StartsWith("HTTP/1.1 200 OK\r\n") && Catch::Contains("document <p>1</p>") &&
                                         Catch::Contains("X-Version: 1\r\n") && Catch::Contains("no-store"));
  CHECK_THAT(served.get("/secret/live.js"), Catch::EndsWith("\r\n\r\nscript"));
  CHECK_THAT(served.get("/secret/state?after=0"), Catch::Contains("<p>1</p>"));
  CHECK_THAT(served.get("/secret/state?after=1"), Catch::Contains("<p>2</p>") && Catch::Contains("X-Run: live"));
  CHECK_THAT(served.get("/wrong/"), Catch::StartsWith("HTTP/1.1 404 Not Found\r\n") && Catch::EndsWith("\r\n\r\n"));
}

TEST_CASE("after the end the last state is sent at once", "[live]") {
  Served served;
  CHECK_THAT(served.get("/secret/state?after=0"), Catch::Contains("<p>1</p>"));
  const Fd socket = served.connect();
  Served::send(socket, "GET /secret/state?after=7 HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::this_thread::sleep_for(300ms);
  served.end();
  CHECK(served.server->is_viewed());
  served.content.refresh();
  served.content.end();
  const auto begin = std::chrono::steady_clock::now();
  served.server->serve_last();
  CHECK(std::chrono::steady_clock::now() - begin < 4s);
  CHECK_THAT(Served::answer(socket), Catch::Contains("204 No Content") && Catch::Contains("X-Run: ended"));
}

TEST_CASE("who sends nothing, or half of a request, keeps nobody out", "[live]") {
  Served served;
  std::vector<Fd> silent, half;
  for (int i = 0; i < 20; ++i) silent.push_back(served.connect());
  for (int i = 0; i < 60; ++i) {
    half.push_back(served.connect());
    Served::send(half.back(), "GET /secret/ HTTP/1.1\r\nHost: ");
  }
  CHECK_THAT(served.get("/secret/"), Catch::Contains("document"));
  for (int i = 0; i < 40; ++i)  // byte after byte
    for (const Fd& socket : half) Served::send(socket, "x");
  CHECK_THAT(served.get("/secret/state?after=0"), Catch::Contains("<p>"));
  served.end();
  CHECK(served.cpu < 500ms);
}

TEST_CASE("who does not read its answer is left", "[live]") {
  PageLimits limits;
  limits.for_answer = 200ms;
  limits.share = 0.5;  // so long an answer spends the usual one for seconds
  Served served(size_t{8} << 20, limits);
  const Fd slow = served.connect();
  Served::send(slow, "GET /secret/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::this_thread::sleep_for(3s);
  CHECK(Served::answer(slow).size() < (size_t{8} << 20));
  // Others are answered once the budget that the long answer has spent is there again.
  std::string script;
  for (int i = 0; i < 20 && script.empty(); ++i) script = served.get("/secret/live.js");
  CHECK_THAT(script, Catch::EndsWith("script"));
}

TEST_CASE("a flood of requests takes a bounded part of the time, also with the secret", "[live]") {
  const std::string path = GENERATE("/guess/", "/secret/", "/secret/state?after=0", "/secret/live.js");
  Served served(size_t{1} << 18);
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<bool> stops{false};
  std::atomic<int> answered{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i)
    clients.emplace_back([&] {
      while (!stops)
        if (!served.get(path).empty()) ++answered;
    });
  const auto passed_time = [&] { return std::chrono::steady_clock::now() - begin; };
  while (passed_time() < 4s || (answered <= 10 && passed_time() < 60s)) std::this_thread::sleep_for(100ms);
  stops = true;
  for (std::thread& client : clients) client.join();
  served.end();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin,
                                      used = std::chrono::duration<double>(served.cpu);
  INFO(path << ": " << answered << " answers, " << used.count() << " s of " << passed.count());
  CHECK(answered > 10);
  CHECK(used.count() < 0.01 * passed.count() + 0.1);  // with what is saved up at the beginning
}

TEST_CASE("a budget gives its share of the run's time", "[live]") {
  CpuBudget budget(0.01, 4ms);
  CHECK(!budget.is_exhausted());
  budget.spend(5ms);
  CHECK(budget.is_exhausted());
  budget.credit(199ms, 0ms);  // for the 1 ms that was too much, and nearly a quarter of the burst
  CHECK(budget.is_exhausted());
  budget.credit(1ms, 0ms);
  CHECK(!budget.is_exhausted());
  budget.credit(1h, 0ms);
  budget.spend(3999us);
  CHECK(!budget.is_exhausted());
  budget.spend(1us);
  CHECK(budget.is_exhausted());
}

TEST_CASE("a run that takes no processor time counts as one busy processor", "[live]") {
  CpuBudget budget(0.01, 4ms);
  budget.spend(4ms);
  budget.credit(0ms, 99ms);
  CHECK(budget.is_exhausted());
  budget.credit(50ms, 1ms);
  CHECK(!budget.is_exhausted());
}
