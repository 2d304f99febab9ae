// SPDX-License-Identifier: Apache-2.0
//
// What the toy model offers besides training: further metrics, estimates of its work, and a sampler of tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "ddh/sdk/model.hpp"

namespace toy {

inline uint64_t hash(uint64_t x) {
  x = (x + 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

// The metrics after the loss: mean powers of the target's probability, whose sums round, then what F1 is made of, where
// tokens of even number are the positives.
class FurtherMetrics {
 public:
  FurtherMetrics(size_t n_powers, bool derives, std::string first_name)
      : n_powers_(n_powers), derives_(derives), first_name_(std::move(first_name)) {}
  [[nodiscard]] size_t size() const { return n_powers_ + (derives_ ? 3 : 0); }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out = {"loss"};
    for (size_t i = 1; i <= n_powers_; ++i) out.push_back(i == 1 ? first_name_ : ddh::str("p", i));
    if (derives_) out.insert(out.end(), {"tp", "fp", "fn"});
    return out;
  }
  [[nodiscard]] std::vector<std::string> reported() const {
    return derives_ ? std::vector<std::string>{"loss", "perplexity", "f1"} : std::vector<std::string>{};
  }
  // One row of probabilities with its target, into sums of size().
  void add(const float* row, size_t vocab, size_t target, std::vector<double>& sums) const {
    double power = 1;
    for (size_t i = 0; i < n_powers_; ++i) sums[i] += power *= static_cast<double>(row[target]);
    if (!derives_) return;
    const bool says = (std::max_element(row, row + vocab) - row) % 2 == 0, is = target % 2 == 0;
    sums[n_powers_] += says && is ? 1 : 0;
    sums[n_powers_ + 1] += says && !is ? 1 : 0;
    sums[n_powers_ + 2] += !says && is ? 1 : 0;
  }
  void derive(const double* sums, const double* counts, double* values) const {
    const double tp = sums[1 + n_powers_], fp = sums[2 + n_powers_], fn = sums[3 + n_powers_];
    values[0] = sums[0] / counts[0];
    values[1] = std::exp(values[0]);
    values[2] = 2 * tp / (2 * tp + fp + fn);
  }

 private:
  size_t n_powers_;
  bool derives_;
  std::string first_name_;
};

// Activations of one micro-batch as the host counts them, while this object lives.
class ActBytes {
 public:
  ActBytes() = default;
  using Values = std::vector<float>;
  ActBytes(const ddh::Host& host, const std::vector<Values>& inputs, const std::vector<Values>& hidden,
           const Values& probabilities)
      : host_(&host) {
    size_t values = probabilities.size();
    for (const Values& x : inputs) values += x.size();
    for (const Values& x : hidden) values += x.size();
    bytes_ = static_cast<int64_t>(values * sizeof(float));
    account(1);
  }
  ActBytes(ActBytes&& other) noexcept { std::swap(host_, other.host_), std::swap(bytes_, other.bytes_); }
  ActBytes& operator=(ActBytes&& other) noexcept {
    std::swap(host_, other.host_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ActBytes() { account(-1); }

 private:
  void account(int64_t sign) const {
    if (host_ != nullptr && host_->alloc != nullptr) host_->alloc->account(host_->h, DDH_TAG_ACT, sign * bytes_);
  }
  const ddh::Host* host_ = nullptr;
  int64_t bytes_ = 0;
};

struct Sizes {
  int32_t layers;
  size_t width, hidden, vocab;
};

// The products of a unit, and what it keeps for its backward: embed and layers their output, layers the hidden states, the
// head its probabilities.
inline ddh_estimate estimate(const Sizes& s, int32_t unit, uint64_t samples) {
  const auto product = [samples](size_t a, size_t b) { return 2.0 * static_cast<double>(samples * a * b); };
  ddh_estimate out{};
  out.struct_size = sizeof out;
  if (unit > 0) out.forward_flops = unit > s.layers ? product(s.width, s.vocab) : 2 * product(s.width, s.hidden);
  out.backward_flops = 2 * out.forward_flops;
  const size_t kept = unit == 0 ? s.width : unit > s.layers ? s.vocab : s.width + s.hidden;
  out.activation_bytes = samples * kept * sizeof(float);
  return out;
}

// Tokens as numbers, one for each run of the eval program.
class Sampler {
 public:
  // The first token is that of the sample `condition`, else of the prompt's last character, else 0.
  void begin(const ddh_sample_args& args, size_t vocab) {
    args_ = args;
    const std::string prompt = args.prompt;
    args_.prompt = nullptr;
    if (prompt == "?") ddh::fail(DDH_INVALID_ARGUMENT, "the toy can't read the prompt '?'");
    const uint64_t first = args.condition >= 0 ? hash(static_cast<uint64_t>(args.condition))
                                               : static_cast<uint64_t>(prompt.empty() ? 0 : prompt.back());
    tokens_ = {static_cast<int32_t>(first % vocab)};
    text_.clear();
    at_start_ = true;
  }
  // Whether no batch has run yet: the first one is the first token.
  [[nodiscard]] bool is_at_start() const { return at_start_; }
  // The token that the next batch holds, or null at the end.
  const int32_t* next() {
    at_start_ = false;
    return tokens_.size() > args_.length ? nullptr : &tokens_.back();
  }
  // Draws the next token from (V) probabilities.
  void draw(const std::vector<float>& probabilities) {
    std::vector<size_t> order(probabilities.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return probabilities[a] > probabilities[b]; });
    if (args_.temperature == 0) order.resize(1);
    if (args_.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(args_.top_k)));
    std::vector<double> ends;
    double total = 0;
    for (const size_t v : order) {
      const double p = static_cast<double>(probabilities[v]);
      ends.push_back(total += order.size() == 1 ? 1 : std::pow(p, 1 / args_.temperature));
    }
    const double at = total * std::ldexp(static_cast<double>(hash(args_.seed + tokens_.size()) >> 11), -53);
    const auto found = std::upper_bound(ends.begin(), ends.end() - 1, at);
    tokens_.push_back(static_cast<int32_t>(order[static_cast<size_t>(found - ends.begin())]));
  }
  const char* text() {
    text_ = "tokens";
    for (const int32_t token : tokens_) text_ += ddh::str(' ', token);
    return text_.c_str();
  }

 private:
  ddh_sample_args args_{};
  std::vector<int32_t> tokens_;
  std::string text_;
  bool at_start_ = true;
};

}  // namespace toy
