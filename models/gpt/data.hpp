// SPDX-License-Identifier: Apache-2.0
//
// gpt/data.hpp: a stream of token ids, divided into a training part and an evaluation part. It comes from a text
// (characters, or byte-pair encoding with model.tokenizer) or from a memory-mapped file of uint16 tokens. A training sample
// starts at any token, and its index is that token's. Evaluation samples start `eval_stride` tokens apart.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bpe.hpp"
#include "ddh/sdk/plugin.hpp"

namespace gpt {

// Ids of one part of the data; data lives as long as the Tokens object.
struct TokenSpan {
  const uint16_t* ids = nullptr;
  uint64_t numel = 0;
  std::string file;  // where they come from
  // Samples of `context` tokens and the token after each, that start `stride` tokens apart.
  [[nodiscard]] uint64_t samples(int64_t context, int64_t stride) const {
    return (numel - static_cast<uint64_t>(context) - 1) / static_cast<uint64_t>(stride) + 1;
  }
};

class Tokens {
 public:
  // Reads data.path (and data.val_path); "" takes the first text that it finds, and logs which. Throws ddh::Error:
  // missing, empty, unreadable, of two kinds, or a part has fewer than context + 2 tokens.
  Tokens(const ddh::Host& host, int64_t context);
  Tokens(const Tokens&) = delete;
  Tokens& operator=(const Tokens&) = delete;
  ~Tokens();

  [[nodiscard]] TokenSpan train() const { return train_; }
  [[nodiscard]] TokenSpan val() const { return val_; }
  // Rows that the embedding needs: the tokenizer's tokens or the distinct characters of a text; 50304 for token files.
  [[nodiscard]] int64_t vocab() const { return vocab_; }

  // What the ids stand for; "" for token files, which don't say it.
  [[nodiscard]] std::string meaning_of_ids() const;

  // What a text without a prompt begins with: <|endoftext|>, else a line break, else id 0.
  [[nodiscard]] int64_t start() const;
  // Text to ids and back. Without a tokenizer the text of a token file is its ids: "17 204 3".
  [[nodiscard]] std::vector<int64_t> encode(const std::string& text) const;
  [[nodiscard]] std::string decode(const std::vector<int64_t>& ids) const;

 private:
  struct Mapping;
  void read_text(const std::string& path, const std::string& val_path, double val_fraction);
  void number_characters(const std::string& text, const std::string& val_text);
  [[nodiscard]] std::vector<uint16_t> ids_of(std::string_view text, const std::string& path) const;
  void map_tokens(const std::string& path, const std::string& val_path, double val_fraction);

  const std::unique_ptr<Bpe> bpe_;  // nullptr without model.tokenizer
  TokenSpan train_, val_;
  int64_t vocab_ = 0;
  std::string characters_;  // id -> byte; empty with a tokenizer and for token files
  std::vector<uint16_t> text_ids_, val_text_ids_;
  std::vector<std::unique_ptr<Mapping>> mappings_;
};

}  // namespace gpt
