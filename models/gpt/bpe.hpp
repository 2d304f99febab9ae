// SPDX-License-Identifier: Apache-2.0
//
// gpt/bpe.hpp: GPT-2's byte-pair encoding (Sennrich et al. 2016; over bytes: Radford et al. 2019), from the files
// vocab.json and merges.txt that Hugging Face and OpenAI publish. Ids are those of their tokenizers. The text
// <|endoftext|> is not special when it is encoded, as in tiktoken's encode_ordinary.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gpt {

class Bpe {
 public:
  // Reads <folder>/vocab.json and <folder>/merges.txt. Throws ddh::Error with the file, and the line of a merge: missing,
  // ill-formed, more than 65,536 tokens, no token for one of the 256 bytes, a merge whose parts or result are no token.
  explicit Bpe(const std::string& folder);
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;
  ~Bpe();

  // `source`: names the text in an error. Throws ddh::Error: the text is not UTF-8.
  [[nodiscard]] std::vector<uint16_t> encode(std::string_view text, const std::string& source) const;
  // Ids that are no token give nothing.
  [[nodiscard]] std::string decode(const std::vector<int64_t>& ids) const;
  // Their bytes, by id.
  [[nodiscard]] const std::vector<std::string>& tokens() const { return bytes_; }
  // The largest id + 1.
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(bytes_.size()); }

 private:
  struct Merge {
    uint32_t rank;  // lower ranks are merged first
    uint16_t result;
  };
  struct Pattern;

  void read_vocab(const std::string& path);
  void read_merges(const std::string& path);
  void append_word(std::string_view word, std::vector<uint16_t>& ids) const;
  [[nodiscard]] std::vector<uint16_t> merged(std::string_view word) const;

  std::vector<std::string> bytes_;                                        // by id
  std::unordered_map<std::string, uint16_t> id_of_;                       // of a token's bytes
  std::array<uint16_t, 256> byte_id_{};                                   // of each byte
  std::unordered_map<uint32_t, Merge> merges_;                            // by pair: first id << 16 | second id
  std::unique_ptr<Pattern> pattern_;                                      // cuts a text into words
  mutable std::unordered_map<std::string, std::vector<uint16_t>> words_;  // encoded before
};

}  // namespace gpt
