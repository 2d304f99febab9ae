// SPDX-License-Identifier: Apache-2.0
//
// The safetensors reader and the plan of a file to be written.
#include "checkpoint/safetensors.hpp"

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

namespace {

std::string with_header(const std::string& header, size_t data_bytes) {
  const uint64_t bytes = header.size();
  std::string file(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  return file + header + std::string(data_bytes, '\1');
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape, int begin, int end) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

void check_refused(const std::string& header, size_t data_bytes, const std::string& reason) {
  const std::string file = with_header(header, data_bytes);
  INFO(header);
  CHECK_THROWS_WITH(parse_safetensors(file, "'w'"), Catch::Contains("'w'") && Catch::Contains(reason));
}

}  // namespace

// Such files were read, with wrong values: each of two overlapping tensors has values of the other.
TEST_CASE("tensors that overlap, leave holes or end before the file are refused by name") {
  CHECK(parse_safetensors(
            with_header("{" + tensor("b", "F32", "[1]", 4, 8) + "," + tensor("a", "U8", "[4]", 0, 4) + "}", 8), "'w'")
            .size() == 2);
  check_refused("{" + tensor("a", "F32", "[2]", 0, 8) + "," + tensor("b", "F32", "[1]", 4, 8) + "}", 8,
                "'b' overlaps another one");
  check_refused("{" + tensor("a", "F32", "[1]", 0, 4) + "," + tensor("b", "F32", "[1]", 8, 12) + "}", 12,
                "'b' has 4 bytes before it that no tensor has");
  check_refused("{" + tensor("a", "F32", "[1]", 2, 6) + "}", 6, "'a' has 2 bytes before it");
  check_refused("{" + tensor("a", "F32", "[1]", 0, 4) + "}", 9, "5 bytes after its last tensor");
  check_refused("{}", 1, "1 bytes after its last tensor");
}

TEST_CASE("shapes and offsets that are no sizes are refused by name") {
  check_refused("{" + tensor("a", "F32", "[1.5]", 0, 6) + "}", 6, "'a' has 1.5 in shape");
  check_refused("{" + tensor("a", "F32", "[-1,-1]", 0, 4) + "}", 4, "'a' has -1 in shape");
  check_refused("{" + tensor("a", "F32", "[\"1\"]", 0, 4) + "}", 4, "in shape, which is no integer");
  check_refused("{" + tensor("a", "F32", "1", 0, 4) + "}", 4, "no list shape");
  check_refused("{" + tensor("a", "F32", "[4294967296,4294967296,4]", 0, 0) + "}", 0, "more than 2^64 bits");
  check_refused("{" + tensor("a", "F32", "[2]", 0, 4) + "}", 4, "has 4 bytes, but its shape and dtype take 8");
  check_refused("{" + tensor("a", "F32", "[0]", 4, 0) + "}", 4, "no begin and end");
  check_refused("{" + tensor("a", "F32", "[1]", 0, 4) + "}", 3, "ends at byte 4 of 3");
  check_refused("{" + tensor("a", "F4", "[1]", 0, 1) + "}", 1, "has 1 bytes, but its shape and dtype take 0");
  check_refused("{" + tensor("a", "FLOAT", "[1]", 0, 4) + "}", 4, "the dtype 'FLOAT', which is unknown");
  check_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4, "no begin and end");
  check_refused(R"({"a":[]})", 0, "'a' is no JSON object");
}

TEST_CASE("a header with a name twice, of another kind or with a wrong length is refused") {
  check_refused("{" + tensor("a", "F32", "[1]", 0, 4) + "," + tensor("a", "F32", "[1]", 0, 4) + "}", 4,
                "the key 'a' occurs twice");
  check_refused("[]", 0, "no JSON object");
  check_refused("{", 0, "not valid JSON");
  check_refused(std::string("{}\0x", 4), 0, "NUL");
  check_refused(R"({"__metadata__":{"a":1}})", 0, "__metadata__ 'a', which is no string");
  check_refused(std::string(100, '['), 0, "64 levels");
  for (const uint64_t bytes : {uint64_t{3}, ~uint64_t{0}, uint64_t{1} << 63}) {
    const std::string file = std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes) + "{}";
    CHECK_THROWS_WITH(parse_safetensors(file, "'w'"), Catch::Contains("its header would have"));
  }
}
