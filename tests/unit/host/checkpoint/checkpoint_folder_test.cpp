// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint that this user may not read is no damaged one: --resume auto would go back to an older one and overwrite it.
#include "checkpoint/checkpoint_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost;
namespace fs = std::filesystem;

namespace {

// Runs body as a user who is not root, for whom rights count.
template <class Body>
void as_user(Body&& body) {
  const bool is_root = geteuid() == 0;
  if (is_root) REQUIRE(seteuid(65534) == 0);
  body();
  if (is_root) REQUIRE(seteuid(0) == 0);
}

// The error's code; DDH_OK: none.
template <class Body>
ddh_rc code_of(Body&& body) {
  try {
    body();
  } catch (const ddh::Error& error) {
    CHECK_FALSE(is_damage(error));
    CHECK_THAT(error.what(), Catch::Contains("give this user the right to read it"));
    return error.code();
  }
  return DDH_OK;
}

}  // namespace

TEST_CASE("a checkpoint without the right to read it is not damaged", "[checkpoint]") {
  const test::TempFolder folder;
  REQUIRE(chmod(folder.path().c_str(), 0755) == 0);
  const fs::path checkpoint = folder.path() / "checkpoints/step-3";
  fs::create_directories(checkpoint);
  std::ofstream(checkpoint / "COMPLETE") << "x";
  const auto open = [&] { static_cast<void>(open_checkpoint(checkpoint)); };
  const auto with_rights = [&](const fs::path& path, mode_t mode, auto&& body) {
    REQUIRE(chmod(path.c_str(), 0) == 0);
    ddh_rc code = DDH_OK;
    as_user([&] { code = code_of(body); });
    REQUIRE(chmod(path.c_str(), mode) == 0);
    return code;
  };
  CHECK(with_rights(checkpoint / "COMPLETE", 0644, open) == DDH_PERMISSION_DENIED);
  CHECK(with_rights(checkpoint, 0755, open) == DDH_PERMISSION_DENIED);
  CHECK(with_rights(checkpoint.parent_path(), 0755, [&] { static_cast<void>(list_checkpoints(folder.path())); }) ==
        DDH_PERMISSION_DENIED);
  CHECK(list_checkpoints(folder.path()).size() == 1);
}
