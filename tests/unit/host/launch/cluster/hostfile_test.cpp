// SPDX-License-Identifier: Apache-2.0
//
// Which hosts and ranks a hostfile and its options choose.
#include "launch/cluster/hostfile.hpp"

#include <catch2/catch.hpp>

#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using ddhost::test::sentence_of;

namespace {

std::string text_of(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) text += ddh::str(host.name, ":", host.slots, " ");
  return text;
}
std::vector<Host> three() { return parse_hostfile("a slots=2\nroot@b slots=4 # GPUs\n\n# none\r\nc\r\n", "hosts"); }
std::string chosen(const HostChoice& choice) { return text_of(chosen_hosts(three(), choice)); }
std::string refusal(const std::string& text) {
  return sentence_of([&] { static_cast<void>(parse_hostfile(text, "hosts")); });
}
std::string refusal(const HostChoice& choice) {
  return sentence_of([&] { static_cast<void>(chosen_hosts(three(), choice)); });
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a line of a hostfile is a host and its ranks", "[hostfile]") {
  CHECK(text_of(three()) == "a:2 root@b:4 c:1 ");
  CHECK(contains(refusal("a\nb slots=0\n"), "line 2: 'slots=0' is no number of ranks"));
  CHECK(contains(refusal("b slots=-1"), "line 1"));
  CHECK(contains(refusal("b slots=99999999999"), "line 1"));
  CHECK(contains(refusal("b slot=2"), "'slot=2' is not slots=N"));
  CHECK(contains(refusal("b slots=2 more"), "'more' follows the slots"));
  CHECK(contains(refusal("a\nroot@a"), "line 2: host 'a' is there twice"));
  for (const char* name : {"-oProxyCommand=x", ";rm", "a b@c", "$(id)", "a@b@c", "@b", "a@", "a/b"})
    CHECK(contains(refusal(name), "line 1"));
  CHECK(contains(refusal("# nothing\n"), "has no host"));
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += ddh::str("host", i, "\n");
  CHECK(contains(refusal(many), "more than 1024 hosts"));
}

TEST_CASE("include and exclude choose hosts and slots in DeepSpeed's form", "[hostfile]") {
  CHECK(chosen({.include = "b@c"}) == "root@b:4 c:1 ");
  CHECK(chosen({.include = "a@b:0,2"}) == "a:2 root@b:2 ");
  CHECK(chosen({.exclude = "b"}) == "a:2 c:1 ");
  CHECK(chosen({.exclude = "b:1@c:0"}) == "a:2 root@b:3 ");
  CHECK(contains(refusal(HostChoice{.include = "a", .exclude = "b"}), "are both given"));
  CHECK(contains(refusal(HostChoice{.include = "d"}), "--include names the host 'd'"));
  CHECK(contains(refusal(HostChoice{.exclude = "b:4"}), "slot '4' of host 'b', which has slots 0 to 3"));
  CHECK(contains(refusal(HostChoice{.exclude = "a@b@c"}), "leave no slot"));
}

TEST_CASE("the number of hosts and ranks is taken from the front", "[hostfile]") {
  CHECK(chosen({.num_nodes = 2}) == "a:2 root@b:4 ");
  CHECK(chosen({.nproc_per_node = 1}) == "a:1 root@b:1 c:1 ");
  CHECK(chosen({.world_size = 3}) == "a:2 root@b:1 ");
  CHECK(chosen({.world_size = 7}) == "a:2 root@b:4 c:1 ");
  CHECK(contains(refusal(HostChoice{.num_nodes = 4}), "more than the 3 hosts"));
  CHECK(contains(refusal(HostChoice{.nproc_per_node = 2}), "more than the 1 slots of host 'c'"));
  CHECK(contains(refusal(HostChoice{.world_size = 8}), "is 1 more than the hosts have slots"));
}
