// SPDX-License-Identifier: Apache-2.0
//
// The safetensors reader and the plan of a file to be written.
#include "engine/weights/safetensors.hpp"

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <fstream>

using namespace ddhost;

namespace {

struct TempFile {
  std::string path = "safetensors_test.safetensors";
  explicit TempFile(const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  ~TempFile() { std::remove(path.c_str()); }
};

std::string small_file() {
  const SafetensorsLayout plan({{"a", DDH_F32, {2, 3}}, {"scalar", DDH_F32, {}}, {"b", DDH_BF16, {4}}},
                               {{"format", "pt"}});
  std::string bytes(plan.file_bytes, '\0');
  bytes.replace(0, plan.header.size(), plan.header);
  const float values[6] = {1, 2, 3, 4, 5, 6}, scalar = 7;
  std::memcpy(bytes.data() + plan.file_offsets[0], values, sizeof values);
  std::memcpy(bytes.data() + plan.file_offsets[1], &scalar, sizeof scalar);
  return bytes;
}

}  // namespace

TEST_CASE("the reader finds the tensors where the plan placed them") {
  const TempFile temp(small_file());
  const SafetensorsFile file(temp.path);
  CHECK(file.tensors().size() == 3);
  const auto* a = file.find("a");
  REQUIRE(a != nullptr);
  CHECK(a->dtype == DDH_F32);
  CHECK(a->shape == std::vector<int64_t>{2, 3});
  CHECK(static_cast<const float*>(a->data)[5] == 6);
  CHECK(static_cast<const float*>(file.find("scalar")->data)[0] == 7);
  CHECK(file.find("b")->bytes == 8);
  CHECK(file.find("c") == nullptr);
}

TEST_CASE("the data section starts on eight bytes") {
  const SafetensorsLayout plan({{"x", DDH_F32, {1}}}, {});
  CHECK(plan.header.size() % 8 == 0);
  CHECK(plan.file_bytes == plan.header.size() + 4);
}

TEST_CASE("a truncated or foreign file is refused by name") {
  const std::string whole = small_file();
  for (const size_t keep : {size_t{0}, size_t{5}, size_t{40}, whole.size() - 1}) {
    const TempFile temp(whole.substr(0, keep));
    CHECK_THROWS_WITH(SafetensorsFile(temp.path), Catch::Contains(temp.path));
  }
  const TempFile foreign("this is plain text and no tensor file at all");
  CHECK_THROWS_WITH(SafetensorsFile(foreign.path), Catch::Contains("not a safetensors file"));
  CHECK_THROWS_WITH(SafetensorsFile("missing.safetensors"), Catch::Contains("missing.safetensors"));
}
