// SPDX-License-Identifier: Apache-2.0
//
// Initial values of parameters: equal for every sharding, and distributed as described.
#include "engine/state/initialize.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "ddh/sdk/plugin.hpp"
#include "engine/services/memory/staging.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost;

namespace {

constexpr uint64_t kNumel = 100'000;

struct OneParam {
  int64_t shape = static_cast<int64_t>(kNumel);
  ddh_param_desc param{};
  const ddh_param_desc* params[1] = {&param};
  ddh_model_desc model{};
  OneParam(int32_t kind, double a, double b, double low = 0, double high = 0) {
    param = {sizeof param, DDH_F32, "weight", &shape, kNumel, 1, 0, 0, kind, a, b, nullptr, low, high, 0, 0, 0, 0};
    model.struct_size = sizeof model;
    model.n_params = 1;
    model.params = params;
  }
  std::vector<float> draw(uint64_t seed, uint64_t piece) const {
    std::vector<float> out(kNumel);
    const ParamInit init(model, seed, {});
    for (uint64_t at = 0; at < kNumel; at += piece) init.init_range(0, at, std::min(piece, kNumel - at), &out[at]);
    return out;
  }
};

}  // namespace

TEST_CASE("initial values don't depend on how a parameter is cut") {
  const int32_t kind = GENERATE(DDH_INIT_NORMAL, DDH_INIT_UNIFORM, DDH_INIT_TRUNC_NORMAL);
  const OneParam p(kind, 0.5, 2.0, 0.25, 3.0);
  const std::vector<float> whole = p.draw(7, kNumel);
  CHECK(whole == p.draw(7, 64));
  CHECK(whole == p.draw(7, 7));
  CHECK(whole == p.draw(7, 64 * 333));
  CHECK(whole != p.draw(8, kNumel));
}

TEST_CASE("normal values have the mean, the deviation and the tails of a normal") {
  const std::vector<float> x = OneParam(DDH_INIT_NORMAL, 1.0, 0.02).draw(1337, kNumel);
  double mean = 0, square = 0;
  int beyond_two = 0;
  for (const float v : x) {
    mean += v;
    square += (v - 1.0) * (v - 1.0);
    beyond_two += std::abs(v - 1.0F) > 0.04F;
  }
  CHECK(mean / kNumel == Approx(1.0).margin(0.02 * 4 / std::sqrt(kNumel)));
  CHECK(std::sqrt(square / kNumel) == Approx(0.02).epsilon(0.01));
  CHECK(beyond_two / static_cast<double>(kNumel) == Approx(0.0455).epsilon(0.06));
}

TEST_CASE("uniform values fill their interval and constants are constant") {
  const std::vector<float> x = OneParam(DDH_INIT_UNIFORM, -1.0, 3.0).draw(3, kNumel);
  CHECK(*std::min_element(x.begin(), x.end()) == Approx(-1).margin(0.01));
  CHECK(*std::max_element(x.begin(), x.end()) < 3.0F);
  CHECK(*std::max_element(x.begin(), x.end()) == Approx(3).margin(0.01));
  CHECK(OneParam(DDH_INIT_CONSTANT, 0.25, 0).draw(3, 64) == std::vector<float>(kNumel, 0.25F));
  CHECK(OneParam(DDH_INIT_ZERO, 9, 9).draw(3, 64) == std::vector<float>(kNumel, 0.0F));
}

TEST_CASE("elements beyond a parameter are refused by name") {
  const OneParam p(DDH_INIT_ZERO, 0, 0);
  float out[2];
  CHECK_THROWS_WITH(ParamInit(p.model, 1, {}).init_range(0, kNumel - 1, 2, out), Catch::Contains("weight"));
}

TEST_CASE("truncated normal values keep to their bounds and have the moments of a truncated normal") {
  // Within [-1, 2] deviations of the mean: by (phi(-1) - phi(2)) / Z and 1 + (-phi(-1) - 2 phi(2)) / Z - mean^2.
  const std::vector<float> x = OneParam(DDH_INIT_TRUNC_NORMAL, 1.0, 0.5, 0.5, 2.0).draw(1337, kNumel);
  double mean = 0, square = 0;
  for (const float v : x) {
    REQUIRE(v >= 0.5F);
    REQUIRE(v <= 2.0F);
    mean += (v - 1.0) / 0.5 / kNumel;
  }
  for (const float v : x) square += std::pow((v - 1.0) / 0.5 - mean, 2) / kNumel;
  const double low = 0.24197072, high = 0.05399097, part = 0.81859461;
  const double expected_mean = (low - high) / part;
  const double expected_square = 1 + (-low - 2 * high) / part - expected_mean * expected_mean;
  CHECK(mean == Approx(expected_mean).margin(4 * std::sqrt(expected_square / kNumel)));
  CHECK(square == Approx(expected_square).epsilon(0.02));
  CHECK(*std::min_element(x.begin(), x.end()) == Approx(0.5).margin(0.001));
  CHECK(*std::max_element(x.begin(), x.end()) == Approx(2.0).margin(0.01));
}

TEST_CASE("invalid bounds of a truncated normal are refused by the parameter's name") {
  const double nan = std::nan("");
  const auto [deviation, low, high] = GENERATE_COPY(table<double, double, double>(
      {{1.0, 2.0, 2.0}, {1.0, 2.0, -2.0}, {0.0, -1.0, 1.0}, {-1.0, -1.0, 1.0}, {1.0, nan, 1.0}, {1.0, 4.0, 5.0}}));
  const OneParam p(DDH_INIT_TRUNC_NORMAL, 0, deviation, low, high);
  CHECK_THROWS_WITH(ParamInit(p.model, 1, {}), Catch::Contains("'weight'"));
}

namespace {

// A file with one tensor "weight" of zeros and, by name, a buffer of two floats.
void write_file(const std::string& path, const char* buffer, int32_t dtype = DDH_F32, float last_value = 4) {
  std::vector<SafetensorsLayout::Item> items = {{"weight", dtype, {static_cast<int64_t>(kNumel)}}};
  if (buffer != nullptr) items.push_back({buffer, DDH_F32, {2}});
  const SafetensorsLayout plan(items, {});
  std::string bytes = plan.header;
  bytes.resize(plan.file_bytes);
  const float values[] = {3, last_value};
  if (buffer != nullptr) std::memcpy(&bytes[plan.file_offsets[1]], values, sizeof values);
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("a buffer of a file that is not finite is refused by name, unless the model keeps it to itself") {
  const test::TempFolder folder;
  const std::string file = folder.file("first.safetensors");
  OneParam p(DDH_INIT_ZERO, 0, 0);
  const int64_t shape = 2;
  std::vector<float> values = {1, 2};
  ddh_buffer_desc buffer{sizeof buffer, DDH_F32, "table", &shape, 2, 1, DDH_SYNC_FOLD, values.data(), 0.9};
  const ddh_buffer_desc* buffers[] = {&buffer};
  p.model.buffers = buffers;
  p.model.n_buffers = 1;
  Device device(ddhost::test::cpu_inst(), ddhost::test::cpu_device(), DDH_CAP_HOST_MEMORY, "cpu", 0);
  Memory memory;
  memory.use(device);
  Staging staging(memory);

  write_file(file, "table", DDH_F32, HUGE_VALF);
  CHECK_THROWS_WITH(ParamInit(p.model, 1, {{file, ""}}).init_buffers(staging),
                    Catch::Contains("buffer 'table' from element 1 on") && Catch::Contains("train.init_from"));
  CHECK(values == std::vector<float>{1, 2});
  buffer.sync = DDH_SYNC_NEVER;
  ParamInit(p.model, 1, {{file, ""}}).init_buffers(staging);
  CHECK(values == std::vector<float>{3, HUGE_VALF});
}

TEST_CASE("a buffer that a file may lack keeps the model's values, unless the file has values for it") {
  const test::TempFolder folder;
  const std::string file = folder.file("first.safetensors");
  OneParam p(DDH_INIT_ZERO, 0, 0);
  const int64_t shape = 2;
  std::vector<float> values = {1, 2};
  ddh_buffer_desc buffer{sizeof buffer, DDH_F32, "table", &shape, 2, 1, DDH_SYNC_NEVER, values.data(), 0};
  const ddh_buffer_desc* buffers[] = {&buffer};
  p.model.buffers = buffers;
  p.model.n_buffers = 1;

  const auto& cpu = ddhost::test::cpu_device();
  Device device(ddhost::test::cpu_inst(), cpu, DDH_CAP_HOST_MEMORY, "cpu", 0);
  Memory memory;
  memory.use(device);
  Staging staging(memory);

  write_file(file, nullptr);
  ParamInit(p.model, 1, {{file, ""}}).init_buffers(staging);
  CHECK(values == std::vector<float>{1, 2});
  write_file(file, "table");
  ParamInit(p.model, 1, {{file, ""}}).init_buffers(staging);
  CHECK(values == std::vector<float>{3, 4});
  write_file(file, nullptr);
  buffer.sync = DDH_SYNC_STEP;
  CHECK_THROWS_WITH(ParamInit(p.model, 1, {{file, ""}}),
                    Catch::Contains("no tensor for 1 of the model's names: 'table'"));
}

TEST_CASE("a parameter comes from a file of F32, BF16 or F16; another dtype is refused by name") {
  const test::TempFolder folder;
  const std::string file = folder.file("first.safetensors");
  const OneParam p(DDH_INIT_CONSTANT, 1, 0);
  for (const int32_t dtype : {DDH_F32, DDH_BF16, DDH_F16}) {
    write_file(file, nullptr, dtype);
    std::vector<float> values(kNumel, 9);
    ParamInit(p.model, 1, {{file, ""}}).init_range(0, 0, kNumel, values.data());
    CHECK(values == std::vector<float>(kNumel, 0.0F));
  }
  write_file(file, nullptr, DDH_F64);
  CHECK_THROWS_WITH(ParamInit(p.model, 1, {{file, ""}}),
                    Catch::Contains("'weight'") && Catch::Contains("convert the file"));
}
