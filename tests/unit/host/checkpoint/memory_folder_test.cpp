// SPDX-License-Identifier: Apache-2.0
//
// The folder of a run's checkpoints in memory: whose it is, and which of its checkpoints are the run's.
#include "checkpoint/memory_folder.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <stop_token>
#include <thread>

#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using ddhost::test::TempFolder;
namespace fs = std::filesystem;

TEST_CASE("each folder of a run has its own folder in memory, by any path", "[checkpoint]") {
  const TempFolder one, two;
  fs::create_directory_symlink(one.path(), two.path() / "link");
  CHECK(memory_folder(one.path()) != memory_folder(two.path()));
  CHECK(memory_folder(two.path() / "link") == memory_folder(one.path()));
  CHECK(memory_folder(one.path() / "." / "a" / ".." / "") == memory_folder(one.path()));
}

TEST_CASE("later steps than the run's last one are of a run before", "[checkpoint]") {
  const TempFolder run;
  CHECK(list_memory_checkpoints(run.path(), 100).empty());
  CHECK(make_memory_folder(run.path()));
  CHECK_FALSE(make_memory_folder(run.path()));  // it is there already
  for (const int64_t step : {10, 20, 30}) fs::create_directories(checkpoint_folder(memory_folder(run.path()), step));
  const std::vector<CheckpointPlace> places = list_memory_checkpoints(run.path(), 25);
  REQUIRE(places.size() == 2);
  CHECK(places[0].step == 20);
  CHECK(places[1].step == 10);
  remove_memory_folder(run.path());
  CHECK_FALSE(fs::exists(memory_folder(run.path())));
}

TEST_CASE("a folder that others can fill is not used, and stays", "[checkpoint]") {
  const TempFolder run;
  const fs::path folder = memory_folder(run.path());
  fs::create_directories(checkpoint_folder(folder, 5));
  ::chmod(folder.c_str(), 0755);
  CHECK(list_memory_checkpoints(run.path(), 100).empty());
  CHECK_THROWS_WITH(make_memory_folder(run.path()), Catch::Contains("this user alone can read"));
  remove_memory_folder(run.path());
  CHECK(fs::exists(folder));
  fs::remove_all(folder);

  fs::create_directory_symlink(run.path(), folder);
  CHECK_THROWS_WITH(make_memory_folder(run.path()), Catch::Contains("this user alone can read"));
  remove_memory_folder(run.path());
  CHECK(fs::is_symlink(folder));
  fs::remove(folder);
}

TEST_CASE("the folder of a run that has claimed it is not removed for another one", "[checkpoint]") {
  const TempFolder run;
  CHECK_FALSE(claim_memory_folder(run.path(), 1));  // there is none
  remove_memory_folder_of(run.path(), 1);
  CHECK_FALSE(has_memory_folder(run.path()));
  take_memory_folder(run.path(), 1);
  CHECK(claim_memory_folder(run.path(), 2));
  remove_memory_folder_of(run.path(), 1);
  CHECK(has_memory_folder(run.path()));
  remove_memory_folder_of(run.path(), 2);
  CHECK_FALSE(has_memory_folder(run.path()));
  make_memory_folder(run.path());
  remove_memory_folder_of(run.path(), 3);  // nobody has claimed it
  CHECK_FALSE(has_memory_folder(run.path()));
}

TEST_CASE("a folder that is claimed at any time while it is removed for another run stays", "[checkpoint]") {
  const TempFolder run;
  for (int i = 0; i < 200; ++i) {
    take_memory_folder(run.path(), 1);
    bool is_claimed = false;
    std::thread claims([&] { is_claimed = claim_memory_folder(run.path(), 2); });
    remove_memory_folder_of(run.path(), 1);
    claims.join();
    // Claimed before, it stays; removed before, there was none to claim.
    CHECK(has_memory_folder(run.path()) == is_claimed);
    remove_memory_folder_of(run.path(), 2);
    CHECK_FALSE(has_memory_folder(run.path()));
  }
}

TEST_CASE("a folder that is taken is there, also while the run before removes its own", "[checkpoint]") {
  const TempFolder run;
  for (int i = 0; i < 200; ++i) {
    take_memory_folder(run.path(), 1);
    std::thread takes([&] { take_memory_folder(run.path(), 2); });
    remove_memory_folder_of(run.path(), 1);
    takes.join();
    CHECK(has_memory_folder(run.path()));
    remove_memory_folder_of(run.path(), 2);
    CHECK_FALSE(has_memory_folder(run.path()));
  }
}

TEST_CASE("a folder that somebody removes while it is made is made again", "[checkpoint]") {
  const TempFolder run;
  int made = 0;
  {
    const std::jthread removes([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) remove_memory_folder(run.path());
    });
    for (int i = 0; i < 20000 || made < 100; ++i) made += make_memory_folder(run.path()) ? 1 : 0;
  }
  remove_memory_folder(run.path());
}

TEST_CASE("two hosts have the same folder in memory only if they share it", "[checkpoint]") {
  const TempFolder one, two;
  CHECK(memory_folder_id(one.path()) == MemoryFolderId{});
  for (const TempFolder* run : {&one, &two}) make_memory_folder(run->path());
  CHECK(memory_folder_id(one.path()) == memory_folder_id(one.path()));
  CHECK(memory_folder_id(one.path()) != memory_folder_id(two.path()));
  for (const TempFolder* run : {&one, &two}) remove_memory_folder(run->path());
}
