// SPDX-License-Identifier: Apache-2.0
//
// `ddhost smoke`: all parts of a run in a short one.
#include <nlohmann/json.hpp>

#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

Said smoke(const TempFolder& folder, const Words& more) {
  return call_ddhost(joined({"smoke", "--model", toy_model(), "--nproc", "2", "--out", folder.file("smoke")}, more));
}

}  // namespace

TEST_CASE("a smoke test trains, evaluates, saves, resumes under two other strategies and exports", "[smoke]") {
  const TempFolder folder;
  const Said said = smoke(folder, {"train.epochs=30", "train.eval_every_epochs=1"});
  INFO(said.out << said.err);
  REQUIRE(said.code == 0);
  CHECK_THAT(said.out, Contains("ok      configuration and plan") && Contains("train 2 steps, evaluate, save") &&
                           Contains("step 2 has the same bits") && Contains("ok      export the weights") &&
                           Contains("all parts ended well"));
  size_t resumed = 0;
  for (const auto& entry : fs::directory_iterator(folder.file("smoke")))
    if (entry.is_directory() && entry.path().filename().string().starts_with("resumed-")) ++resumed;
  CHECK(resumed == 2);
  CHECK(read_run(folder.path() / "smoke/trained").evaluations.size() == 1);
  CHECK_FALSE(fs::exists(folder.file("smoke/exported")));  // weights are removed where all went well
  // The same folder again, with the words of a long run.
  CHECK(smoke(folder, {"train.steps=100000", "run.dir=" + folder.file("long"), "train.save_final=long.st",
                       "profile.steps=20-25"})
            .code == 0);
  CHECK_FALSE(fs::exists(folder.file("long")));
}

TEST_CASE("the part of a smoke test that fails is named, with its sentence", "[smoke]") {
  const TempFolder folder;
  const Said no_data = smoke(folder, {"train.init_from=" + folder.file("none.safetensors")});
  INFO(no_data.out << no_data.err);
  CHECK(no_data.code != 0);
  CHECK_THAT(no_data.out, Contains("ok      configuration") && Contains("FAILED  train 2 steps"));
  CHECK_THAT(no_data.err, Contains("none.safetensors"));
  CHECK(no_data.out.find("export") == no_data.out.rfind("export"));  // only in what was announced
  const Said unknown = smoke(folder, {"train.stepz=3"});
  CHECK(unknown.code != 0);
  CHECK_THAT(unknown.out, Contains("FAILED  configuration and plan"));
  CHECK_THAT(unknown.err, Contains("train.stepz"));
}

TEST_CASE("a smoke test leaves a folder of others alone", "[smoke]") {
  const TempFolder folder;
  fs::create_directories(folder.file("smoke"));
  std::ofstream(folder.file("smoke/mine.txt")) << "mine";
  CHECK_THAT(smoke(folder, {}).err, Contains("holds no smoke test"));
  CHECK(read_text(folder.file("smoke/mine.txt")) == "mine");
}
