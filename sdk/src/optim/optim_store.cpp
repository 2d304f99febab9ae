// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/optim/optim_store.hpp"

#include "ddh/sdk/strategy.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

void OptimStore::state_read(uint32_t entry, uint64_t, uint64_t, void*) { no_such_state_entry(entry); }
void OptimStore::state_write(uint32_t entry, uint64_t, uint64_t, const void*) { no_such_state_entry(entry); }

ResidentOptim::ResidentOptim(const Host& host, const ModelLayout& layout, const PartOf& part_of)
    : host_(host), layout_(layout) {
  for (const FlatSpace& space : layout.spaces) parts_.push_back(part_of(space));
}

uint64_t ResidentOptim::bytes() const {
  uint64_t sum = 0;
  for (size_t s = 0; s < parts_.size(); ++s) sum += bytes_of(s);
  return sum;
}

uint64_t ResidentOptim::bytes_of(size_t space) const {
  return OptimState::bytes(host_, layout_.spaces[space], parts_[space].numel, parts_[space].offset);
}

uint64_t ResidentOptim::pinned_bytes() const {
  uint64_t sum = 0;
  for (size_t s = 0; s < parts_.size(); ++s)
    if (parts_[s].memory == DDH_MEM_PINNED) sum += bytes_of(s);
  return sum;
}

void ResidentOptim::materialize() {
  for (size_t s = 0; s < parts_.size(); ++s) {
    const FlatSpace& space = layout_.spaces[s];
    const OptimPart& part = parts_[s];
    states_.emplace_back(host_, space, space.ranges(part.offset, part.numel), part.numel, part.memory);
  }
}

void ResidentOptim::init(ParamStore& params) {
  for (size_t s = 0; s < states_.size(); ++s) params.write(s, [&](void* values) { states_[s].init(values); });
}

void ResidentOptim::prepare(const ddh_step_block&, ParamStore& params, GradStore& grads) {
  for (size_t s = 0; s < states_.size(); ++s) {
    const float* const grad = grads.sum(s);
    if (grad != nullptr) states_[s].prepare(params.values(s), grad, parts_[s].replica);
  }
}

void ResidentOptim::update(const ddh_step_block&, ParamStore& params, GradStore& grads) {
  for (size_t s = 0; s < states_.size(); ++s) {
    const float* const grad = grads.sum(s);
    if (grad != nullptr) params.write(s, [&](void* values) { states_[s].update(values, grad); });
  }
}

void ResidentOptim::refresh(ParamStore& params) {
  for (size_t s = 0; s < states_.size(); ++s) params.write(s, [&](void* values) { states_[s].refresh(values); });
}

void ResidentOptim::free_unused() {
  for (size_t s = 0; s < states_.size(); ++s) states_[s].free_unused(layout_.spaces[s]);
}

void ResidentOptim::append_state(std::vector<ddh_state_entry>& out, ParamStore& params) {
  for (size_t s = 0; s < states_.size(); ++s) states_[s].append_state(out, params.values(s), parts_[s].replica);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
