// SPDX-License-Identifier: Apache-2.0
//
// The schema that is made of a table of options, and the formula of an element-wise optimizer with such a table.
#include "ddh/sdk/options.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "ddh/sdk/kernels/elementwise.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    ddh::lr_option("1e-3"),
    {"name", "string", R"("none")", R"("enum": ["none", "some"])", "a choice"},
    ddh::two_rates_option("betas", "[0.9, 0.99]", "two rates"),
    {"on", "boolean", "true", "", "a switch"},
};
constexpr ddh::Option kOne[] = {{"n", "integer", "3", "", "a number"}};
constexpr std::string_view kAliases = R"("x-aliases": {"step_size": {"key": "lr"}})";
constexpr const char* kWithAliases = ddh::kSchemaOf<kOptions, kAliases>;

// sum += g^2, count += 1, p -= lr g: two numbers of state.
struct Both {
  float lr;
  DDH_SIMD_INLINE float operator()(float p, float g, float& sum, float& count) const {
    sum = sum + g * g;
    count = count + 1.0f;
    return p - lr * g;
  }
};
struct Stateless {
  float lr;
  DDH_SIMD_INLINE float operator()(float p, float g) const { return p - lr * g; }
};

}  // namespace

TEST_CASE("a table of options becomes a JSON schema with every member, in the order of the table") {
  const auto schema = nlohmann::ordered_json::parse(kWithAliases);
  CHECK(schema["type"] == "object");
  const auto& properties = schema["properties"];
  REQUIRE(properties.size() == 4);
  CHECK(properties.begin().key() == "lr");
  CHECK(properties["lr"] == nlohmann::ordered_json::parse(R"({"type": "number", "minimum": 0, "default": 1e-3,
    "description": "learning rate; the schedule computes the rate of each step from it"})"));
  CHECK(properties["name"]["enum"].size() == 2);
  CHECK(properties["name"]["default"] == "none");
  CHECK(properties["betas"]["items"]["minimum"] == 0);
  CHECK(properties["betas"]["maxItems"] == 2);
  CHECK(properties["on"] ==
        nlohmann::ordered_json::parse(R"({"type": "boolean", "default": true, "description": "a switch"})"));
  CHECK(schema["x-aliases"]["step_size"]["key"] == "lr");
}

TEST_CASE("a schema without further members ends after its properties") {
  CHECK(std::string_view(ddh::kSchemaOf<kOne>) ==
        R"({"type": "object", "properties": {"n": {"type": "integer", "default": 3, "description": "a number"}}})");
}

TEST_CASE("a formula gets the scaled sum of the sources, reads and writes its state, and leaves its neighbours alone") {
  constexpr size_t kNumel = 103;
  std::vector<float> p(kNumel + 16, 1.0f), sum(kNumel + 16, 0.5f), count(kNumel + 16, 0.0f);
  std::vector<float> a(kNumel + 16, 2.0f), b(kNumel + 16, 4.0f);
  ddh_step_block block{};
  block.struct_size = sizeof block;
  block.inv_scale = 0.5;
  block.clip_factor = 1;
  const float* grads[] = {a.data(), b.data()};
  void* slots[] = {nullptr, sum.data(), count.data()};
  ddh_optim_shard shard{};
  shard.struct_size = sizeof shard;
  shard.master = p.data();
  shard.grads = grads;
  shard.n_grads = 2;
  shard.slots = slots;
  shard.n_slots = 3;
  const ddh_range range{0, 0, 0, 8, kNumel};
  ddh::update_range(block, shard, range, Both{0.25f}, 1);
  for (size_t i = 0; i < p.size(); ++i) {
    const bool is_inside = i >= 8 && i < 8 + kNumel;
    REQUIRE(p[i] == (is_inside ? 0.25f : 1.0f));
    REQUIRE(sum[i] == (is_inside ? 9.5f : 0.5f));
    REQUIRE(count[i] == (is_inside ? 1.0f : 0.0f));
  }
  shard.n_grads = 1;
  ddh::update_range(block, shard, range, Stateless{1.0f});
  CHECK(p[7] == 1.0f);
  CHECK(p[8] == -0.75f);
}
