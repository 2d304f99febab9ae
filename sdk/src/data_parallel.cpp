// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/data_parallel.hpp"

#include <algorithm>

namespace ddh {
inline namespace v1 DDH_HIDDEN {

void DataParallel::attach(const ddh_attach_args& args) {
  args_ = sharing(args);
  const std::vector<bool> coded = coded_params(host, *args.model);
  Grouping groups = grouping();
  groups.slot_use = slot_use(host, *args.model);
  layout_ = ModelLayout(args_, whole_params(host, *args.model), groups, coded);
  layout_.ranks = GroupRanks::strided(args.rank - args_.rank, 1, args_.world_size, args_.rank, args.node_of);
  views_ = UnitViews(*args.model, layout_);
  optim_ = optimizer();
  params_ = parameters();
  grads_ = gradients();
  if (std::find(coded.begin(), coded.end(), true) != coded.end())
    grads_ = std::make_unique<CodedGrads>(host, layout_, args, args_.rank, args.rank == args_.rank, std::move(grads_));
}

void DataParallel::plan(ddh_plan& out) {
  for (size_t s = 0; s < layout_.spaces.size(); ++s) {
    const FlatSpace& space = layout_.spaces[s];
    for (const PlacedParam& p : space.params)
      if (p.in_blocks && out.grad_in_blocks != nullptr) out.grad_in_blocks[p.param] = 1;
    if (!space.coded && space.trained_in(layout_.first_program()))
      out.reduce_calls += uint64_t{reductions_per_step(args_)} * grads_->calls_per_reduction(s);
  }
  out.reduce_calls += grads_->reduce_calls();
  out.param_bytes = params_->bytes();
  out.grad_bytes = grads_->bytes();
  out.optim_bytes = optim_->bytes();
  out.comm_bytes = std::max(grads_->comm_bytes(), init_rounded_bytes(layout_, args_.rank));  // one after the other
  out.file_bytes = optim_->file_bytes();
  out.shared_bytes = params_->shared_bytes();
  out.pinned_bytes = params_->pinned_bytes() + grads_->pinned_bytes() + optim_->pinned_bytes();
  out.publish_calls = params_->publish_calls();
  SentBytes sent = params_->sent_bytes();
  sent += grads_->sent_bytes();
  out.sent_bytes = sent.all;
  out.sent_between_nodes_bytes = sent.between_nodes;
}

void DataParallel::materialize() {
  optim_->materialize();
  params_->materialize();
  optim_->init(*params_);
  grads_->materialize(host);
}

void DataParallel::step_begin(const ddh_step_begin_args& args) {
  optim_->step_begin();
  grads_->step_begin(args.step);
}

void DataParallel::acquire(const ddh_unit_use& use, ddh_unit_view& out) {
  params_->open(use);
  views_.fill(
      use, version_, [&](size_t s) { return params_->view(s); }, [&](size_t s) { return grads_->writable(s); }, out);
}

void DataParallel::release(const ddh_unit_use& use) { params_->close(use); }

void DataParallel::next_block(const ddh_unit_use& use, ddh_grad_block& out) {
  const bool last = is_last_micro_batch(use, args_);
  for (size_t s = 0; s < layout_.spaces.size(); ++s) {
    const FlatSpace& space = layout_.spaces[s];
    const bool has_blocks = space.blocks_numel > 0 && space.is_ready_after(use.unit, use.program);
    if (has_blocks && grads_->next_block(s, last, out)) return;
  }
  out.param = -1;
}

void DataParallel::grads_ready(const ddh_unit_use& use) { hand_over(use, args_, layout_, views_, *grads_); }

void DataParallel::step() {
  grads_->reduce_all();
  const ddh_step_block& block = decide_step();
  optim_->prepare(block, *params_, *grads_);
  sum_norms(host);
  optim_->update(block, *params_, *grads_);
  grads_->step_done();
  values_changed();
  params_->step_done();
  optim_->step_done();
}

std::vector<ddh_state_entry> DataParallel::state() {
  std::vector<ddh_state_entry> out;
  optim_->append_state(out, *params_);
  return out;
}

void DataParallel::state_commit() {
  optim_->refresh(*params_);
  values_changed();
}

void DataParallel::trains_later(const uint8_t* trains) {
  call(host.stream->synchronize, host.h, nullptr);  // the last updates
  optim_->free_unused();
  for (size_t s = 0; s < layout_.spaces.size(); ++s) {
    const std::vector<PlacedParam>& params = layout_.spaces[s].params;
    if (std::none_of(params.begin(), params.end(), [&](const PlacedParam& p) { return trains[p.param] != 0; }))
      grads_->free(s);
  }
}

ddh_group* DataParallel::make_group(const char* name, int32_t first, int32_t stride, int32_t count) const {
  std::vector<int32_t> ranks;
  for (int32_t i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  ddh_group* group = nullptr;
  call(host.comm->group_create, host.h, name, ranks.data(), static_cast<uint32_t>(count), &group);
  return group;
}

void DataParallel::values_changed() {
  ++version_;
  params_->values_changed();
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
