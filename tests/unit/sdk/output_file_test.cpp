// SPDX-License-Identifier: Apache-2.0
//
// OutputFile where the disk is full: here a limit of the size of files.
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "ddh/sdk/monitor.hpp"

namespace {

namespace fs = std::filesystem;

class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;
  ~SizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

std::string text_of(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

}  // namespace

TEST_CASE("a row that does not fit on the disk leaves no byte, then or when the file is closed", "[monitor]") {
  const fs::path path = fs::temp_directory_path() / ddh::str("ddhost-output-", ::getpid());
  const size_t size = GENERATE(size_t{10}, size_t{100'000});  // less and more than a buffer of stdio
  for (const bool goes_on : {false, true}) {
    INFO(size << " bytes, goes on: " << goes_on);
    {
      ddh::OutputFile file(path.string());
      file.write("first\n");
      {
        const SizeLimit limit(8);  // some of the next row fits
        CHECK_THROWS_WITH(file.write(std::string(size, 'x')),
                          Catch::Contains("cannot write") && !Catch::Contains("half a row"));
      }
      CHECK(text_of(path) == "first\n");
      if (goes_on) file.write("second\n");
    }
    CHECK(text_of(path) == (goes_on ? "first\nsecond\n" : "first\n"));
  }
  fs::remove(path);
}
