// SPDX-License-Identifier: Apache-2.0
#include "bpe.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"

namespace gpt {
namespace {

constexpr size_t kMostTokens = 65536;           // ids are uint16, as in token files
constexpr size_t kMostWords = size_t{1} << 20;  // that are kept with their ids
// GPT-2's pattern: contractions, letters, digits, other characters, each with at most one space before it; white space.
constexpr const char* kPattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr ddh::InputWords kTokenizerFile{"tokenizer file",
                                         "model.tokenizer names a folder with vocab.json and merges.txt"};

// The files write each byte as a printable character: itself, or the next one from 256 on.
std::unordered_map<std::string, char> bytes_of_characters() {
  std::unordered_map<std::string, char> out;
  unsigned int next = 256;
  for (unsigned int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const unsigned int c = is_printable ? byte : next++;
    const std::string utf8 = c < 128
                                 ? std::string(1, static_cast<char>(c))
                                 : std::string{static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    out[utf8] = static_cast<char>(byte);
  }
  return out;
}

// The bytes that `written` stands for; false: it holds a character that stands for none.
bool read_bytes(const std::string& written, std::string& out) {
  static const std::unordered_map<std::string, char> kBytes = bytes_of_characters();
  out.clear();
  for (size_t at = 0; at < written.size();) {
    const size_t length = (static_cast<unsigned char>(written[at]) & 0x80) == 0 ? 1 : 2;
    const auto byte = kBytes.find(written.substr(at, length));
    if (byte == kBytes.end()) return false;
    out += byte->second;
    at += length;
  }
  return true;
}

uint32_t pair_of(uint16_t first, uint16_t second) { return static_cast<uint32_t>(first) << 16 | second; }

}  // namespace

struct Bpe::Pattern {
  Pattern() {
    int error = 0;
    PCRE2_SIZE at = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                         &at, nullptr);
    if (code == nullptr) ddh::fail(DDH_INTERNAL, "PCRE2 refuses GPT-2's pattern (error ", error, ")");
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it the pattern is interpreted
    match = pcre2_match_data_create_from_pattern(code, nullptr);
    if (match == nullptr) ddh::fail(DDH_RESOURCE_EXHAUSTED, "no memory for PCRE2");
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern() {
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
};

Bpe::Bpe(const std::string& folder) : pattern_(std::make_unique<Pattern>()) {
  read_vocab(folder + "/vocab.json");
  read_merges(folder + "/merges.txt");
}

Bpe::~Bpe() = default;

void Bpe::read_vocab(const std::string& path) {
  const nlohmann::json vocab =
      nlohmann::json::parse(ddh::read_input(path, kTokenizerFile), nullptr, /*allow_exceptions=*/false);
  if (!vocab.is_object() || vocab.empty())
    ddh::fail(DDH_DATA_LOSS, "'", path, "' is no JSON object of tokens and their ids; fetch the file again");
  std::vector<bool> taken;
  for (const auto& [token, value] : vocab.items()) {
    const bool is_id = value.is_number_unsigned() && value.get<uint64_t>() < kMostTokens;
    if (!is_id)
      ddh::fail(DDH_DATA_LOSS, "'", path, "' gives the token '", token, "' the id ", value.dump(),
                "; ids are integers below ", kMostTokens);
    const auto id = value.get<uint16_t>();
    if (id >= taken.size()) {
      taken.resize(size_t{id} + 1);
      bytes_.resize(size_t{id} + 1);
    }
    if (taken[id]) ddh::fail(DDH_DATA_LOSS, "'", path, "' gives the id ", id, " twice; fetch the file again");
    taken[id] = true;
    if (!read_bytes(token, bytes_[id])) bytes_[id] = token;  // a special token
    id_of_[bytes_[id]] = id;
  }
  for (size_t byte = 0; byte < byte_id_.size(); ++byte) {
    const auto at = id_of_.find(std::string(1, static_cast<char>(byte)));
    if (at == id_of_.end())
      ddh::fail(DDH_DATA_LOSS, "'", path, "' has no token for the byte ", byte,
                "; model.tokenizer takes byte-level vocabularies such as GPT-2's");
    byte_id_[byte] = at->second;
  }
}

void Bpe::read_merges(const std::string& path) {
  std::istringstream in(ddh::read_input(path, kTokenizerFile));
  std::string line, first, second;
  for (int number = 1; std::getline(in, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    const bool is_pair = space != std::string::npos && line.find(' ', space + 1) == std::string::npos &&
                         read_bytes(line.substr(0, space), first) && read_bytes(line.substr(space + 1), second);
    if (!is_pair) ddh::fail(DDH_DATA_LOSS, "'", path, "', line ", number, ": '", line, "' is no pair of tokens");
    const auto a = id_of_.find(first), b = id_of_.find(second), both = id_of_.find(first + second);
    if (a == id_of_.end() || b == id_of_.end() || both == id_of_.end())
      ddh::fail(DDH_DATA_LOSS, "'", path, "', line ", number, ": vocab.json lacks a part or the result of '", line,
                "'; take both files from one model");
    merges_.try_emplace(pair_of(a->second, b->second), Merge{static_cast<uint32_t>(merges_.size()), both->second});
  }
  if (merges_.empty()) ddh::fail(DDH_DATA_LOSS, "'", path, "' holds no merges; fetch the file again");
}

std::vector<uint16_t> Bpe::merged(std::string_view word) const {
  std::vector<uint16_t> ids;
  for (const char c : word) ids.push_back(byte_id_[static_cast<unsigned char>(c)]);
  for (;;) {
    const Merge* best = nullptr;
    uint32_t best_pair = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto at = merges_.find(pair_of(ids[i], ids[i + 1]));
      if (at == merges_.end() || (best != nullptr && at->second.rank >= best->rank)) continue;
      best = &at->second;
      best_pair = at->first;
    }
    if (best == nullptr) return ids;
    size_t out = 0;
    for (size_t i = 0; i < ids.size(); ++out) {
      const bool merges = i + 1 < ids.size() && pair_of(ids[i], ids[i + 1]) == best_pair;
      ids[out] = merges ? best->result : ids[i];
      i += merges ? 2 : 1;
    }
    ids.resize(out);
  }
}

void Bpe::append_word(std::string_view word, std::vector<uint16_t>& ids) const {
  const auto [at, is_new] = words_.try_emplace(std::string(word));
  if (is_new) at->second = merged(word);
  ids.insert(ids.end(), at->second.begin(), at->second.end());
  if (words_.size() >= kMostWords) words_.clear();
}

std::vector<uint16_t> Bpe::encode(std::string_view text, const std::string& source) const {
  std::vector<uint16_t> ids;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  uint32_t options = 0;  // the first match checks that the whole text is UTF-8
  for (size_t at = 0; at < text.size(); options = PCRE2_NO_UTF_CHECK) {
    const int rc = pcre2_match(pattern_->code, subject, text.size(), at, options, pattern_->match, nullptr);
    if (rc <= PCRE2_ERROR_UTF8_ERR1 && rc >= PCRE2_ERROR_UTF8_ERR21)
      ddh::fail(DDH_DATA_LOSS, source, " is not UTF-8 at byte ", pcre2_get_startchar(pattern_->match),
                "; convert it, or leave model.tokenizer out");
    if (rc < 0) ddh::fail(DDH_INTERNAL, "PCRE2 could not cut ", source, " into words (error ", rc, ")");
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(pattern_->match);
    append_word(text.substr(range[0], range[1] - range[0]), ids);
    at = range[1];
  }
  return ids;
}

std::string Bpe::decode(const std::vector<int64_t>& ids) const {
  std::string text;
  for (const int64_t id : ids)
    if (id >= 0 && id < size()) text += bytes_[static_cast<size_t>(id)];
  return text;
}

}  // namespace gpt
