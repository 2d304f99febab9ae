// SPDX-License-Identifier: Apache-2.0
//
// Where the ranks of a hostfile are, for plans and dry runs; also with another number of ranks than was asked for.
#include "cli/run_hosts.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "config/run_length.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

struct Hosts {
  TempFolder folder;
  std::string file = folder.file("hosts");
  Hosts() { std::ofstream(file) << "node1 slots=4\nnode2 slots=4\nnode3 slots=4\n"; }
  // The options of a run, as they are before plugins are loaded.
  [[nodiscard]] Config with(const std::string& nproc) const {
    std::vector<Override> words = {{"launch.hostfile", file, "test"}};
    if (!nproc.empty()) words.push_back({"run.nproc", nproc, "test"});
    const UserConfig user = UserConfig::read("", words);
    return {user, run_sections(user), /*plugin_sections=*/false};
  }
};

void check(const RunPlace& place, int world, int local, const std::vector<int32_t>& hosts) {
  CHECK(place.world_size == world);
  CHECK(place.local_size == local);
  CHECK(place.ranks_of_hosts == hosts);
  CHECK(place.has_other_launchers == (hosts.size() > 1));
}

}  // namespace

TEST_CASE("the ranks of a hostfile are placed once, also where a place has hosts already") {
  const Hosts hosts;
  RunPlace place;
  place_on_hosts(hosts.with(""), place);
  check(place, 12, 4, {4, 4, 4});
  place_on_hosts(hosts.with(""), place);
  check(place, 12, 4, {4, 4, 4});
  place_on_hosts(hosts.with("6"), place);
  check(place, 6, 4, {4, 2});
  place_on_hosts(hosts.with("3"), place);
  check(place, 3, 3, {});
}

TEST_CASE("with another number of ranks a run has the first hosts of its hostfile, and no host of the larger world") {
  const Hosts hosts;
  RunPlace place;
  place_on_hosts(hosts.with(""), place);
  check(place_of(place, 6, hosts.with("6")), 6, 4, {4, 2});
  check(place_of(place, 3, hosts.with("3")), 3, 3, {});
  const UserConfig user = UserConfig::read("", {});
  check(place_of(place, 6, Config(user, run_sections(user), false)), 6, 0, {});
}
