// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair encoding against the ids of Hugging Face's package `tokenizers` (tests/data/make_bpe.py), and files that no
// tokenizer wrote.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../../models/gpt/bpe.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/golden_data.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

const fs::path kFolder = fs::path(DDHOST_SOURCE_DIR) / "tests/data/bpe";

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<int64_t> wide(const std::vector<uint16_t>& ids) { return {ids.begin(), ids.end()}; }

// The sentence for a tokenizer whose file `name` is `text`; the other file is good.
std::string refusal(const char* name, const std::string& text) {
  const TempFolder folder;
  for (const char* file : {"vocab.json", "merges.txt"}) fs::copy_file(kFolder / file, folder.file(file));
  std::ofstream(folder.file(name), std::ios::trunc) << text;
  return sentence_of([&] { gpt::Bpe bpe(folder.path().string()); });
}

}  // namespace

TEST_CASE("byte-pair encoding gives the ids of the reference, and decoding gives the text back", "[golden]") {
  const gpt::Bpe bpe(kFolder.string());
  CHECK(bpe.size() == 512);
  const auto expected = nlohmann::json::parse(contents(kFolder / "expected.json"));
  REQUIRE(expected["cases"].size() == 13);
  for (const auto& one : expected["cases"]) {
    const auto text = one["text"].get<std::string>();
    INFO('"' << text << '"');
    const std::vector<uint16_t> ids = bpe.encode(text, "the text");
    CHECK(wide(ids) == one["ids"].get<std::vector<int64_t>>());
    CHECK(bpe.decode(wide(ids)) == text);
  }
}

TEST_CASE("byte-pair encoding of a whole file gives the ids of the reference", "[golden]") {
  const auto path = find_data("shakespeare/input.txt");
  if (!path) return;
  const auto expected = nlohmann::json::parse(contents(kFolder / "expected.json"))["shakespeare"];
  const std::string text = contents(*path);
  const gpt::Bpe bpe(kFolder.string());
  const std::vector<uint16_t> ids = bpe.encode(text, "the text");
  uint32_t checksum = 0;
  for (const uint16_t id : ids) checksum = checksum * 31 + id;
  CHECK(ids.size() == expected["numel"].get<size_t>());
  CHECK(checksum == expected["checksum"].get<uint32_t>());
  CHECK(bpe.decode(wide(ids)) == text);
}

TEST_CASE("files that are no tokenizer are refused with the file, and the line of a merge", "[golden]") {
  const std::string vocab = contents(kFolder / "vocab.json");
  auto changed = nlohmann::json::parse(vocab);
  CHECK_THAT(sentence_of([] { gpt::Bpe bpe("/no/such"); }),
             Catch::Contains("'/no/such/vocab.json' does not exist") && Catch::Contains("model.tokenizer"));
  CHECK_THAT(refusal("vocab.json", vocab.substr(0, vocab.size() / 2)), Catch::Contains("is no JSON object"));
  CHECK_THAT(refusal("vocab.json", "[1, 2]"), Catch::Contains("is no JSON object"));
  changed["the"] = -1;
  CHECK_THAT(refusal("vocab.json", changed.dump()), Catch::Contains("the token 'the' the id -1"));
  changed["the"] = 70000;
  CHECK_THAT(refusal("vocab.json", changed.dump()), Catch::Contains("the id 70000; ids are integers below 65536"));
  changed["the"] = changed["a"];
  CHECK_THAT(refusal("vocab.json", changed.dump()), Catch::Contains("twice"));
  changed = nlohmann::json::parse(vocab);
  changed.erase("a");
  CHECK_THAT(refusal("vocab.json", changed.dump()), Catch::Contains("no token for the byte 97"));
  CHECK_THAT(refusal("merges.txt", "#version: 0.2\nt h\nt h e\n"), Catch::Contains("line 3: 't h e' is no pair"));
  CHECK_THAT(refusal("merges.txt", "#version: 0.2\nq z\n"), Catch::Contains("line 2") && Catch::Contains("'q z'"));
  CHECK_THAT(refusal("merges.txt", ""), Catch::Contains("holds no merges"));
}

TEST_CASE("a text that is not UTF-8 is refused with the byte", "[golden]") {
  const gpt::Bpe bpe(kFolder.string());
  CHECK_THAT(sentence_of([&] { static_cast<void>(bpe.encode("good \xFF bad", "'a.txt'")); }),
             Catch::Contains("'a.txt' is not UTF-8 at byte 5"));
}
