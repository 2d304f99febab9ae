// SPDX-License-Identifier: Apache-2.0
//
// Full views of parameters that are gathered: what is open, what it takes, and which units a policy gathers ahead.
#include "ddh/sdk/params/gathered_params.hpp"

#include "ddh/sdk/params/prefetch_policy.hpp"
#include "unit/sdk/store_fixture.hpp"

using namespace ddhost::test;

namespace {

// A model of `units` units with one parameter of 64 elements each (256 bytes), and an order of uses forward and back.
struct Chain {
  explicit Chain(size_t units) : shapes(units, 64), params(units), uses(units), unit_descs(units), order(units) {
    for (size_t u = 0; u < units; ++u) {
      names.push_back(ddh::str("p", u));
      uses[u] = order[u] = static_cast<int32_t>(u);
    }
    for (size_t u = 0; u < units; ++u) {
      params[u].struct_size = sizeof params[u];
      params[u].name = names[u].c_str();
      params[u].shape = &shapes[u];
      params[u].n_dims = 1;
      params[u].numel = 64;
      params[u].owner_unit = static_cast<int32_t>(u);
      unit_descs[u] = {sizeof(ddh_unit_desc), 1, names[u].c_str(), &uses[u]};
      param_list.push_back(&params[u]);
      unit_list.push_back(&unit_descs[u]);
    }
    program.struct_size = sizeof program;
    program.kind = DDH_PROGRAM_TRAIN;
    program.units = order.data();
    program.n_units = static_cast<uint32_t>(units);
    desc = {sizeof desc,
            static_cast<uint32_t>(units),
            param_list.data(),
            unit_list.data(),
            nullptr,
            programs,
            static_cast<uint32_t>(units),
            0,
            1,
            0,
            "chain",
            nullptr,
            nullptr,
            0,
            0};
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  std::vector<int64_t> shapes;
  std::vector<ddh_param_desc> params;
  std::vector<int32_t> uses;
  std::vector<ddh_unit_desc> unit_descs;
  std::vector<int32_t> order;
  std::vector<std::string> names;
  std::vector<const ddh_param_desc*> param_list;
  std::vector<const ddh_unit_desc*> unit_list;
  ddh_program_desc program{};
  const ddh_program_desc* programs[1] = {&program};
  ddh_model_desc desc{};
};

struct Limits {
  FakeValue units = std::string("null"), bytes = std::string("null"), live = std::string("null");
  int64_t reuse = 0;
};

// What is open while each unit of a step is used, forward and back, and what is open after it: "0:01 -> 1".
std::vector<std::string> open_units(StoreRank& rank, size_t units, const Limits& limits) {
  const Chain chain(units);
  const AttachArgs attach(chain.desc, 2);
  const ddh::ModelLayout layout(attach.get());
  FakeHost options({{"strategy.prefetch_units", limits.units},
                    {"strategy.prefetch_bytes", limits.bytes},
                    {"strategy.max_live_bytes", limits.live},
                    {"strategy.reuse_bytes", limits.reuse},
                    {"strategy.persistence_bytes", int64_t{0}}});
  const ddh::Host option_host(options.get());
  const ddh::PrefetchPolicy policy(ddh::SectionOptions(option_host, "strategy"));
  ddh::GatheredParams params(*rank.host, layout, rank.args.group, 0);  // dry: it counts alone
  const auto shown = [&] {
    std::string out;
    for (size_t u = 0; u < units; ++u)
      if (params.is_open(layout.unit_uses[u].front())) out += std::to_string(u);
    return out;
  };
  std::vector<std::string> out;
  ddh::run_uses(layout.programs.front(), 1, [&](const ddh_unit_use& use) {
    policy.open(use, params);
    const std::string during = shown();
    policy.close(use, params);
    out.push_back(ddh::str(use.unit, ":", during, " -> ", shown()));
  });
  return out;
}
std::vector<std::string> open_units(size_t units, const Limits& limits) {
  std::vector<std::string> out;
  in_stores(1, [&](CommRank& transport) {
    StoreRank rank(transport, true);
    out = open_units(rank, units, limits);
  });
  return out;
}

using Steps = std::vector<std::string>;

}  // namespace

TEST_CASE("without limits a unit is gathered ahead, and nothing stays behind", "[prefetch]") {
  CHECK(open_units(3, {}) == Steps{"0:01 -> 1", "1:12 -> 2", "2:2 -> 2", "2:12 -> 1", "1:01 -> 0", "0:0 -> "});
}

TEST_CASE("prefetch_units is how many units are gathered ahead", "[prefetch]") {
  CHECK(open_units(3, {.units = int64_t{0}}) ==
        Steps{"0:0 -> ", "1:1 -> ", "2:2 -> ", "2:2 -> ", "1:1 -> ", "0:0 -> "});
  CHECK(open_units(4, {.units = int64_t{2}}) == Steps{"0:012 -> 12", "1:123 -> 23", "2:23 -> 3", "3:23 -> 23",
                                                      "3:123 -> 12", "2:012 -> 01", "1:01 -> 0", "0:0 -> "});
}

TEST_CASE("prefetch_bytes limits the bytes of the next units, and alone also their number", "[prefetch]") {
  // 256 bytes a unit: two units ahead, then one because of the number, then none.
  CHECK(open_units(4, {.bytes = int64_t{512}}) == open_units(4, {.units = int64_t{2}}));
  CHECK(open_units(4, {.units = int64_t{1}, .bytes = int64_t{512}}) == open_units(4, {.units = int64_t{1}}));
  CHECK(open_units(4, {.bytes = int64_t{255}}) == open_units(4, {.units = int64_t{0}}));
}

TEST_CASE("max_live_bytes limits what is gathered at a time; the unit in use is always gathered", "[prefetch]") {
  const Steps steps = open_units(4, {.units = int64_t{3}, .live = int64_t{512}});
  REQUIRE(steps.size() == 8);
  for (const std::string& step : steps) {
    INFO(step);
    const size_t during = step.find(" -> ") - 2;
    CHECK(during <= 2);
    CHECK(step.find(step[0], 2) != std::string::npos);
  }
  // The unit that is used twice in a row is not closed between.
  CHECK(open_units(3, {.live = int64_t{0}}) ==
        Steps{"0:0 -> ", "1:1 -> ", "2:2 -> 2", "2:2 -> ", "1:1 -> ", "0:0 -> "});
}

TEST_CASE("reuse_bytes keeps a unit that is used again soon", "[prefetch]") {
  // After its forward unit 1 is used again two uses later, and stays; unit 0 is used again later than that.
  const Steps steps = open_units(3, {.units = int64_t{0}, .reuse = 3 * 256});
  CHECK(steps[0] == "0:0 -> ");
  CHECK(steps[1] == "1:1 -> 1");
  CHECK(steps[2] == "2:12 -> 12");
  CHECK(steps[5] == "0:0 -> ");
}

TEST_CASE("a view stays open until its last release, and closing spares what is kept", "[gathered]") {
  in_stores(2, [&](CommRank& transport) {
    StoreRank rank(transport, true);
    ddh::GatheredParams params(*rank.host, rank.layout, rank.args.group, rank.rank);
    params.materialize();
    for (size_t s = 0; s < rank.layout.spaces.size(); ++s) {
      params.window(s).write_begin();
      params.window(s).commit();
    }
    params.acquire({0});
    params.acquire({0});
    params.open({1, 2});
    expect(params.opens() == 3 && params.n_open() == 3, "opens: ", params.opens());
    params.open({1});
    expect(params.opens() == 3, "a view that is open was opened");
    params.release({0});
    params.keep(1);
    params.close_others();
    expect(params.is_open(0), "a view that is acquired was closed");
    expect(params.is_open(1) && !params.is_open(2), "kept were the wrong ones");
    expect(!params.is_kept(1), "a view is kept for longer than one close");
    params.release({0});
    params.close_others();
    expect(params.n_open() == 0 && params.open_numel() == 0, "views are open: ", params.n_open());
    expect(params.view(0) == nullptr, "a view after its end");
  });
}

TEST_CASE("on a transport that copies, closed views give their memory to the next ones", "[gathered]") {
  in_stores(2, [&](CommRank& transport) {
    StoreRank rank(transport, true);
    const size_t wide = rank.space_of(2), last = rank.space_of(4);
    ddh::GatheredParams dry(*rank.host, rank.layout, rank.args.group, rank.rank);
    ddh::GatheredParams params(*rank.host, rank.layout, rank.args.group, rank.rank);
    params.materialize();
    const uint64_t resting = rank.bytes(DDH_TAG_PARAM);
    expect(resting == params.resting_bytes(), "at rest ", resting, " instead of ", params.resting_bytes());
    for (size_t s = 0; s < rank.layout.spaces.size(); ++s) {
      params.window(s).write_begin();
      params.window(s).commit();
    }
    for (const size_t s : {wide, last, wide}) {
      params.open({s});
      params.close_others();
      dry.open({s});
      dry.close_others();
    }
    expect(rank.bytes(DDH_TAG_PARAM) - resting == params.peak_open_bytes(), "open ",
           rank.bytes(DDH_TAG_PARAM) - resting, " instead of ", params.peak_open_bytes());
    expect(dry.peak_open_bytes() == params.peak_open_bytes(), "a dry run counts ", dry.peak_open_bytes());
    expect(params.peak_open_bytes() == rank.layout.spaces[wide].value_bytes(), "two views were open at a time");
  });
}
