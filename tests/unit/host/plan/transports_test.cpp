// SPDX-License-Identifier: Apache-2.0
//
// Which transports a run has on one host and on several.
#include "plan/transports.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "config/run_length.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/skip.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

// The plan of a run. `hosts`: the number of ranks on each host. Its comm.between is a transport of the tests.
PreparedRun plan_on(const std::vector<int32_t>& hosts, const std::vector<Override>& more,
                    const std::string& file = "") {
  std::vector<Override> settings = {{"model.plugin", test_plugin("toy"), "test"},
                                    {"comm.between", test_plugin("sockets"), "test"}};
  settings.insert(settings.end(), more.begin(), more.end());
  Registry registry(&host_interface, DDHOST_BUILD_DIR, linked_plugins());
  RunPlace place{.device = {"cpu", "a test"}, .world_size = Nodes(hosts).world_size()};
  place.has_other_launchers = hosts.size() > 1;
  if (hosts.size() > 1) place.ranks_of_hosts = hosts;
  return prepare_run(UserConfig::read(file, settings), registry, place);
}

std::string refusal(const std::vector<int32_t>& hosts, const std::vector<Override>& more) {
  try {
    static_cast<void>(plan_on(hosts, more));
  } catch (const ddh::Error& error) {
    return error.what();
  }
  return "it is accepted";
}

}  // namespace

TEST_CASE("hosts with several ranks have two transports", "[transports]") {
  struct Chosen {
    std::string plugin, key;
    bool inside;
    bool operator==(const Chosen&) const = default;
  };
  const auto chosen = [](const std::vector<int32_t>& hosts, const std::vector<Override>& settings) {
    const UserConfig user = UserConfig::read("", settings);
    PreparedRun plan;
    plan.world_size = Nodes(hosts).world_size();
    if (hosts.size() > 1) plan.ranks_of_hosts = hosts;
    const std::string plugin = choose_transport(Config(user, run_sections(user), /*plugin_sections=*/false), plan);
    return Chosen{plugin, plan.comm_key, plan.wants_inside_comm};
  };
  CHECK(chosen({2, 1}, {}) == Chosen{"", "comm.between", true});
  CHECK(chosen({2, 2}, {{"comm.plugin", "auto", "test"}}) == Chosen{"", "comm.between", true});
  CHECK(chosen({1, 1}, {}) == Chosen{"gloo", "comm.between", false});
  CHECK(chosen({3}, {}) == Chosen{"shm", "comm.inside", false});
  CHECK(chosen({2, 2}, {{"comm.plugin", "gloo", "test"}}) == Chosen{"", "comm.plugin", false});

  CHECK(plan_on({3}, {{"comm.inside", "auto", "test"}}).config.text("comm.plugin") == "shm");
  const PreparedRun here = plan_on({3}, {});
  CHECK_FALSE(here.has_inside_comm());
  CHECK(here.config.text("comm.plugin") == "shm");
}

TEST_CASE("transports that can't connect the ranks are refused", "[transports]") {
  CHECK_THAT(refusal({2, 2}, {{"comm.plugin", "shm", "test"}}),
             Catch::Contains("comm 'shm' connects ranks of one host, and this run has 2; choose another --comm"));
  CHECK_THAT(refusal({2, 2}, {{"comm.between", "shm", "test"}}), Catch::Contains("choose another comm.between"));
  CHECK_THAT(refusal({1, 1}, {{"comm_inside.staging_bytes", "65536", "test"}}),
             Catch::Contains("'comm_inside' on test belongs to no transport"));
}

TEST_CASE("what needs one host is refused on two", "[transports]") {
  if (!std::filesystem::exists(std::string(DDHOST_BUILD_DIR) + "/plugins/gloo.so"))
    return skip("this build has no transport between hosts");
  const Override between = {"comm.between", "gloo", "test"};
  CHECK_THAT(refusal({2, 2}, {between, {"comm.inside", "gloo", "test"}}),
             Catch::Contains("comm.inside 'gloo' is not for ranks of one host"));
  CHECK(plan_on({2, 2}, {{"comm.between", "auto", "test"}}).comm.id() == "gloo");
}

TEST_CASE("copies of checkpoints in memory need a second host", "[transports]") {
  const Override every = {"checkpoint.memory_every", "10", "test"}, copies = {"checkpoint.memory_copies", "2", "test"};
  CHECK_THAT(refusal({4}, {every, copies}),
             Catch::Contains("checkpoint.memory_copies=2 needs a second host for the copies, and this run has one"));
  if (!std::filesystem::exists(std::string(DDHOST_BUILD_DIR) + "/plugins/gloo.so"))
    return skip("this build has no transport between hosts");
  const Override between = {"comm.between", "gloo", "test"};
  CHECK_THAT(refusal({2, 2}, {between, copies}), Catch::Contains("what checkpoint.memory_every keeps, and that is 0"));
  CHECK(refusal({2, 2}, {between, every, copies}) == "it is accepted");
  CHECK(plan_on({2, 2}, {between, every}).memory_by_host);
  CHECK_FALSE(plan_on({4}, {every}).memory_by_host);
}

TEST_CASE("a file of a run on several hosts is taken on one", "[transports]") {
  const TempFolder folder;
  const std::string file = (folder.path() / "run.json").string();
  std::ofstream(file) << R"({"comm": {"plugin": "auto", "of_another": 1}, "comm_inside": {"staging_bytes": 65536}})";
  const PreparedRun run = plan_on({2}, {}, file);
  CHECK(run.comm.id() == "shm");
  REQUIRE(run.replaced.size() == 1);
  CHECK_THAT(run.replaced[0], Catch::Contains("comm.plugin=auto of") && Catch::Contains("is 'shm' here") &&
                                  Catch::Contains("options for other transports are not used") &&
                                  Catch::Contains("comm.of_another, comm_inside.staging_bytes"));

  const PreparedRun given = plan_on({2}, {{"comm.plugin", "shm", "test"}}, file);
  REQUIRE(given.replaced.size() == 1);
  CHECK_THAT(given.replaced[0], Catch::Contains("comm 'shm' replaces 'auto' of") &&
                                    Catch::Contains("comm.of_another, comm_inside.staging_bytes"));
}

TEST_CASE("options for the transport inside a host are taken on one host without comm.plugin in the file",
          "[transports]") {
  const TempFolder folder;
  const std::string file = (folder.path() / "run.json").string();
  std::ofstream(file) << R"({"comm_inside": {"staging_bytes": 65536}})";
  const PreparedRun run = plan_on({2}, {}, file);
  REQUIRE(run.replaced.size() == 1);
  CHECK_THAT(run.replaced[0], Catch::Contains("'shm' here") && Catch::Contains("not used: comm_inside.staging_bytes"));

  std::ofstream(file) << R"({"comm": {"of_another": 1}})";  // a wrong name is one: the options are those of shm
  CHECK_THROWS_WITH(plan_on({2}, {}, file), Catch::Contains("of_another"));
}
