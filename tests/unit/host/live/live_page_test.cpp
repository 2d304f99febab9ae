// SPDX-License-Identifier: Apache-2.0
//
// The page of a run whose folder and progress pages the test writes: what it shows, and when it begins.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <thread>

#include "base/json.hpp"
#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "live/live_page.hpp"

using namespace ddhost;
using namespace std::chrono_literals;

namespace {

// A run of two ranks, of which this launcher has `here`.
class ShownRun {
 public:
  explicit ShownRun(RankRange here) : progress_(2), page_("127.0.0.1:0") {
    const std::vector<uint8_t> note = Json::to_cbor({{"run_dir", temp_.path().string()}, {"hidden", Json::array()}});
    record_.set_folder(std::string(note.begin(), note.end()));
    page_.begin({record_, progress_, here, 0});
  }
  void add(const std::string& file, const std::string& text) const {
    std::ofstream(temp_.path() / file, std::ios::binary | std::ios::app) << text;
  }
  // The state after that version; "" at the end of the connection.
  [[nodiscard]] std::string state(uint64_t after) const {
    const size_t port_at = page_.url().find(':', 7) + 1, slash = page_.url().find('/', port_at);
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(page_.url().substr(port_at, slash - port_at))));
    ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    const timeval limit{30, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return "";
    const std::string request =
        ddh::str("GET ", page_.url().substr(slash), "state?after=", after, " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    static_cast<void>(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL));
    std::string out;
    std::array<char, 65536> part{};
    for (ssize_t n = 0; (n = ::recv(socket.get(), part.data(), part.size(), 0)) > 0;)
      out.append(part.data(), static_cast<size_t>(n));
    return out;
  }
  // Asks until a state has this text.
  [[nodiscard]] std::string wait_for(const std::string& text) const {
    std::string seen;
    uint64_t version = 0;
    for (const auto end = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < end;) {
      seen = state(version);
      if (seen.find(text) != std::string::npos) return seen;
      if (const size_t at = seen.find("X-Version: "); at != std::string::npos)
        version = std::stoull(seen.substr(at + 11));
    }
    FAIL("the page does not show '" << text << "', but: " << seen.substr(0, 2000));
    return "";
  }
  Progress& progress() { return progress_; }
  LivePage& page() { return page_; }

 private:
  ddhost::test::TempFolder temp_;
  LoaderRecord record_;
  Progress progress_;
  LivePage page_;
};

constexpr const char* kRow = "{\"step\":1,\"loss\":4.0,\"step_ms\":2,\"tokens_per_s\":100}\n";
constexpr const char* kSummary =
    "{\"summary\":{\"steps\":1,\"world_size\":2,\"unique_peak_bytes\":{\"param\":7340000000},"
    "\"ranks\":[{\"memory_bytes\":{\"param\":{\"peak\":5250000000}}},{\"memory_bytes\":{\"param\":{\"peak\":5250000000}"
    "}}]}}"
    "\n";

}  // namespace

TEST_CASE("a launcher without ranks shows the run when its folder has steps", "[live]") {
  ShownRun run({0, 0});
  CHECK_THAT(run.state(0), Catch::Contains("being prepared"));
  run.add("run.lock", "{\"begun\": 0, \"steps\": 1, \"saved\": 0}");
  run.add("metrics.jsonl", kRow);
  CHECK_THAT(run.wait_for("last loss"), Catch::Contains("running") && Catch::Contains("X-Run: live"));
}

TEST_CASE("ranks that are not the run's first have their own numbers", "[live]") {
  ShownRun run({1, 1});
  run.add("metrics.jsonl", kRow);
  run.progress().set_begun(1);
  CHECK_THAT(run.wait_for("last loss"), Catch::Contains("rank 1</text>") && !Catch::Contains("rank 0</text>"));
}

TEST_CASE("the last state has the summary that the run has written, not the numbers of its ranks", "[live]") {
  ShownRun run({0, 2});
  run.add("metrics.jsonl", kRow);
  run.progress().set_begun(0);
  CHECK_THAT(run.wait_for("last loss"), !Catch::Contains("7340.0 MB"));
  run.add("metrics.jsonl", kSummary);
  CHECK_THAT(run.wait_for("7340.0 MB"), Catch::Contains("5250.0 MB"));
  run.page().end();
  std::string last;
  std::thread viewer([&] { last = run.state(1'000'000); });
  run.page().show_end();
  viewer.join();
  CHECK_THAT(last, Catch::Contains("X-Run: ended"));
}
