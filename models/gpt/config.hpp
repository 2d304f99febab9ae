// SPDX-License-Identifier: Apache-2.0
//
// gpt/config.hpp: the shape of a GPT and the names of its sizes.
//
// Letters used in this folder: B samples of a micro-batch, T context, C width, H heads, D = C / H, V vocabulary, N = B T.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "ddh/sdk/later_gradients.hpp"
#include "ddh/sdk/plugin.hpp"

namespace gpt {

struct Config {
  int64_t n_layer, n_head, width;
  int64_t context;      // T
  int64_t eval_stride;  // tokens between the starts of two evaluation samples
  int64_t positions;    // rows of the position table, at least T
  int64_t vocab;        // V
  bool bias;            // of linear layers and layer norms
  bool tied;            // head = token embedding
  bool tanh_gelu;       // GPT-2's gelu_new; else the exact erf form
  double dropout;
  uint64_t seed;
  at::ScalarType compute;  // dtype of weights and of the operands of products

  // Of the tables of tokens, embedding and head; 0: their gradients exist only whole.
  [[nodiscard]] uint64_t grad_block() const { return tied ? 0 : ddh::grad_block_of({vocab, width}); }

  // Options of section model; `data_vocab`: the vocabulary of the data. Throws ddh::Error.
  Config(const ddh::Host& host, int64_t data_vocab);
};

extern const char* const kSchema;  // JSON Schema of section model

// The context of section model, without a Config: the data is divided into samples of this length.
int64_t context_of(const ddh::Host& host);

}  // namespace gpt
