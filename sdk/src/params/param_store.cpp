// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/params/param_store.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

uint64_t ParamStore::bytes() {
  uint64_t bytes = 0;
  for (const FlatSpace& space : layout_.spaces) bytes += space.value_bytes();
  return bytes;
}

uint64_t ParamStore::window_bytes_of_peers() {
  if ((host_.window->caps(host_.h, args_.group) & DDH_COMM_SHARED_VIEW) == 0) return 0;
  uint64_t mine = 0;
  for (const FlatSpace& space : layout_.spaces) mine += space.value_segment_bytes(args_.rank);
  return bytes() - mine;
}

uint64_t ParamStore::publish_calls() {
  uint64_t calls = 0;
  for (const FlatSpace& space : layout_.spaces) calls += space.trained_in(layout_.first_program()) ? 1 : 0;
  return calls;
}

SentBytes ParamStore::sent_bytes() {
  SentBytes sent;
  for (const FlatSpace& space : layout_.spaces)
    if (space.trained_in(layout_.first_program())) sent += layout_.sent_values(space);
  return sent;
}

// ---- ReplicatedParams --------------------------------------------------------------------------------------------------

void ReplicatedParams::materialize() {
  for (const FlatSpace& space : layout_.spaces)
    buffers_.emplace_back(host_, DDH_TAG_PARAM, space.value_bytes(), str("parameters of ", space.name));
}

// ---- PublishedParams ---------------------------------------------------------------------------------------------------

void PublishedParams::materialize() {
  for (const FlatSpace& space : layout_.spaces) windows_.emplace_back(host_, args_.group, space, DDH_WINDOW_PERMANENT);
}

void PublishedParams::open(const ddh_unit_use& use) {
  for (const size_t s : spaces_of(use)) views_[s] = windows_[s].open();
}

void PublishedParams::close(const ddh_unit_use& use) {
  for (const size_t s : spaces_of(use)) windows_[s].close();
}

void PublishedParams::step_done() {
  if (!waits_at_step_) return;
  for (Window& window : windows_) window.open();
  for (Window& window : windows_) window.close();
}

// ---- GatheredStore -----------------------------------------------------------------------------------------------------

GatheredStore::Gathered GatheredStore::dry() const {
  Gathered out;
  out.source = make_source();
  out.params = GatheredParams(host_, layout_, args_.group, args_.rank, out.source.get());
  return out;
}

uint64_t GatheredStore::bytes() {
  Gathered gathered = dry();
  const uint64_t open_bytes = peak_open_bytes(
      gathered.params, [&](const ddh_unit_use& use, GatheredParams&) { gather_for(use, gathered); },
      [&](const ddh_unit_use& use, GatheredParams&) { drop_after(use, gathered); });
  return gathered.params.resting_bytes() + open_bytes;
}

uint64_t GatheredStore::shared_bytes() { return make_source() == nullptr ? window_bytes_of_peers() : 0; }

uint64_t GatheredStore::pinned_bytes() {
  const Gathered gathered = dry();
  return gathered.source == nullptr ? 0 : gathered.source->pinned_bytes();
}

GatheredStore::Gathered GatheredStore::dry_step() const {
  Gathered gathered = dry();
  run_train_step(
      layout_, [&](const ddh_unit_use& use) { gather_for(use, gathered); },
      [&](const ddh_unit_use& use) { drop_after(use, gathered); });
  return gathered;
}

uint64_t GatheredStore::publish_calls() {
  if (make_source() == nullptr) return ParamStore::publish_calls();
  const Gathered gathered = dry_step();
  const bool has_windows = !gathered.source->keeps_segments();
  return source_calls(gathered) + (has_windows ? ParamStore::publish_calls() : 0);
}

// Shared pages are published. Without them each view that is opened is gathered; views that stay open are gathered once.
SentBytes GatheredStore::sent_bytes() {
  if (!dry().params.gathers_by_copy()) return ParamStore::sent_bytes();
  SentBytes sent = dry_step().params.sent_bytes();
  for (const FlatSpace& space : layout_.spaces)
    if (space.persistent && space.trained_in(layout_.first_program())) sent += layout_.sent_values(space);
  return sent;
}

void GatheredStore::materialize() {
  gathered_ = dry();
  gathered_.params.materialize();
}

Window* GatheredStore::window(size_t space) {
  const bool has_windows = gathered_.source == nullptr || !gathered_.source->keeps_segments();
  return has_windows ? &gathered_.params.window(space) : nullptr;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
