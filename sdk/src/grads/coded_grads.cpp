// SPDX-License-Identifier: Apache-2.0
//
// Gradients that a codec compresses: their arrays, and the rounds of messages.
#include "ddh/sdk/grads/coded_grads.hpp"

#include <algorithm>
#include <cstring>

#include "ddh/sdk/collective.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

std::vector<bool> coded_params(const Host& host, const ddh_model_desc& model) {
  if (host.codecs == nullptr) return {};
  std::vector<bool> coded;
  for (uint32_t p = 0; p < model.n_params; ++p)
    coded.push_back(host.codecs->max_rounds(host.h, static_cast<int32_t>(p)) > 0);
  return coded;
}

CodedGrads::CodedGrads(const Host& host, const ModelLayout& layout, const ddh_attach_args& args, int32_t rank,
                       bool in_norm, std::unique_ptr<GradStore> others)
    : host_(host),
      layout_(layout),
      args_(args),
      rank_(rank),
      in_norm_(in_norm),
      others_(std::move(others)),
      spaces_(layout.spaces.size()) {
  for (size_t s = 0; s < spaces_.size(); ++s)
    if (layout.spaces[s].coded) spaces_[s].param = layout.spaces[s].params.front().param;
}

uint64_t CodedGrads::bytes() const {
  uint64_t bytes = others_->bytes();
  for (size_t s = 0; s < spaces_.size(); ++s)
    if (is_coded(s)) bytes += layout_.spaces[s].grad_bytes() * (adds_micro_batches() ? 2 : 1);
  return bytes;
}

uint64_t CodedGrads::comm_bytes() const {
  uint64_t most = 0;
  for (uint32_t round = 0; round < most_rounds(); ++round) most = std::max(most, message_numel(round, -1));
  return most * sizeof(float);
}

SentBytes CodedGrads::sent_bytes() const {
  SentBytes sent = others_->sent_bytes();
  const GroupRanks world = GroupRanks::strided(0, 1, args_.world_size, args_.rank, args_.node_of);
  for (uint32_t round = 0; round < most_rounds(); ++round)
    sent += world.all_reduce(message_numel(round, layout_.first_program()), sizeof(float));
  return sent;
}

uint32_t CodedGrads::reduce_calls() const { return most_rounds(); }

void CodedGrads::materialize(const Host& host) {
  others_->materialize(host);
  for (size_t s = 0; s < spaces_.size(); ++s) {
    if (!is_coded(s)) continue;
    const FlatSpace& space = layout_.spaces[s];
    spaces_[s].ranges = space.segment_ranges(rank_);
    spaces_[s].grad = Buffer(host, DDH_TAG_GRAD, space.grad_bytes(), str("gradient of ", space.name));
    if (adds_micro_batches())
      spaces_[s].micro_sum = Buffer(host, DDH_TAG_GRAD, space.grad_bytes(), str("gradient sum of ", space.name));
  }
  if (comm_bytes() > 0) messages_ = Buffer(host, DDH_TAG_COMM, comm_bytes(), "messages of the codec");
}

void CodedGrads::step_begin(int64_t step) {
  others_->step_begin(step);
  step_ = step;
  for (Space& space : spaces_)
    space.is_coded = space.param >= 0 && host_.codecs->rounds(host_.h, space.param, step) > 0;
}

float* CodedGrads::writable(size_t space) {
  if (!is_coded(space)) return others_->writable(space);
  add(space);
  return spaces_[space].grad.f32();
}

void CodedGrads::ready(size_t space, bool last) {
  if (!is_coded(space)) return others_->ready(space, last);
  spaces_[space].is_ready = true;
}

// In rank_first order the sums over the ranks of one micro-batch are added before those of the next.
void CodedGrads::add(size_t space) {
  Space& s = spaces_[space];
  if (!s.is_ready) return;
  const uint64_t numel = layout_.spaces[space].numel;
  const float* const grad = s.grad.f32();
  float* const sum = sum_of(s);
  if (!s.is_coded)
    all_reduce(grad, sum, s.added > 0 ? sum : nullptr, numel, "gradient without codec");
  else if (adds_micro_batches() && s.added == 0)
    std::memcpy(sum, grad, numel * sizeof(float));
  else if (adds_micro_batches())
    for (uint64_t i = 0; i < numel; ++i) sum[i] += grad[i];
  s.is_ready = false;
  ++s.added;
}

void CodedGrads::reduce_all() {
  others_->reduce_all();
  for (size_t s = 0; s < spaces_.size(); ++s) add(s);
  exchange_messages();
  if (!in_norm_) return;
  for (size_t s = 0; s < spaces_.size(); ++s) {
    const Space& space = spaces_[s];
    if (space.added == 0 || space.ranges.empty()) continue;
    const float* const segment = sum_of(space) + layout_.spaces[s].cut.segment_offset[static_cast<size_t>(rank_)];
    call(host_.optim->add_gradient, host_.h, segment, space.ranges.data(), static_cast<uint32_t>(space.ranges.size()));
  }
}

void CodedGrads::exchange_messages() {
  const ddh_codecs_api& codec = *host_.codecs;
  std::vector<Space*> left;
  for (Space& space : spaces_)
    if (space.is_coded && space.added > 0) left.push_back(&space);
  for (uint32_t round = 0;; ++round) {
    std::erase_if(left, [&](const Space* s) { return codec.rounds(host_.h, s->param, step_) <= round; });
    if (left.empty()) return;
    const auto for_each = [&](auto&& body) {
      float* at = messages_.f32();
      for (const Space* s : left) {
        body(*s, at);
        at += codec.message_numel(host_.h, s->param, round);
      }
      return static_cast<uint64_t>(at - messages_.f32());
    };
    const uint64_t numel = for_each(
        [&](const Space& s, float* message) { call(codec.encode, host_.h, s.param, round, sum_of(s), message); });
    all_reduce(messages_.f32(), messages_.f32(), nullptr, numel, "messages of the codec");
    for_each(
        [&](const Space& s, const float* message) { call(codec.decode, host_.h, s.param, round, message, sum_of(s)); });
  }
}

void CodedGrads::all_reduce(const float* send, float* recv, const float* initial, uint64_t numel,
                            const char* label) const {
  sum_to_all(host_, args_.group, send, recv, initial, numel, label);
}

const float* CodedGrads::sum(size_t space) {
  if (!is_coded(space)) return others_->sum(space);
  const Space& s = spaces_[space];
  if (s.added == 0) return nullptr;
  return sum_of(s) + (sums_are_whole() ? 0 : layout_.spaces[space].cut.segment_offset[static_cast<size_t>(rank_)]);
}

void CodedGrads::step_done() {
  others_->step_done();
  for (Space& space : spaces_) space.added = 0;
}

void CodedGrads::free(size_t space) {
  if (!is_coded(space)) return others_->free(space);
  spaces_[space].grad = Buffer();
  spaces_[space].micro_sum = Buffer();
}

uint64_t CodedGrads::message_numel(uint32_t round, int32_t program) const {
  uint64_t numel = 0;
  for (size_t s = 0; s < spaces_.size(); ++s) {
    if (!is_coded(s) || host_.codecs->max_rounds(host_.h, spaces_[s].param) <= round) continue;
    if (program < 0 || layout_.spaces[s].trained_in(program))
      numel += host_.codecs->message_numel(host_.h, spaces_[s].param, round);
  }
  return numel;
}

uint32_t CodedGrads::most_rounds() const {
  uint32_t most = 0;
  for (const Space& space : spaces_)
    if (space.param >= 0) most = std::max(most, host_.codecs->max_rounds(host_.h, space.param));
  return most;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
