// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/params/param_store.hpp: how a data-parallel strategy stores the values of parameters, in the dtype of views.
// ReplicatedParams: every rank has and updates all. PublishedParams: every rank has all and updates its segment.
// GatheredStore: every rank has its segment, and gathers the rest while a unit uses it.
#pragma once

#include <deque>
#include <memory>

#include "ddh/sdk/params/gathered_params.hpp"
#include "ddh/sdk/params/prefetch_policy.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// A `space` is an index in ModelLayout::spaces.
class ParamStore {
 public:
  // All three outlive the store.
  ParamStore(const Host& host, const ModelLayout& layout, const ddh_attach_args& args)
      : host_(host), layout_(layout), args_(args) {}
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;
  virtual ~ParamStore() = default;

  // Peak bytes under DDH_TAG_PARAM on this rank. Known before materialize.
  [[nodiscard]] virtual uint64_t bytes();
  // Of these: in pages of other ranks of the machine, which count them too.
  [[nodiscard]] virtual uint64_t shared_bytes() { return 0; }
  // Of these: in pinned memory.
  [[nodiscard]] virtual uint64_t pinned_bytes() { return 0; }
  // The number of publishes and gathers in a step of the run's first program (ddh_plan.publish_calls).
  [[nodiscard]] virtual uint64_t publish_calls();
  // What this rank sends in such a step. By default it publishes its segments of what is trained.
  [[nodiscard]] virtual SentBytes sent_bytes();
  virtual void materialize() = 0;

  // Between open and close the whole space is available. [collective]
  virtual void open(const ddh_unit_use& use) = 0;
  virtual void close(const ddh_unit_use& use) = 0;
  // The whole space, while it is open.
  [[nodiscard]] virtual void* view(size_t space) const = 0;

  // The part that this rank updates, while no unit uses the space.
  [[nodiscard]] virtual void* values(size_t space) { return window(space)->segment(); }
  // The window that publishes this rank's updates; nullptr if there is none.
  [[nodiscard]] virtual Window* window(size_t) { return nullptr; }
  // Runs body(values) with the writable values of a space.
  template <class Body>
  void write(size_t space, Body&& body) {
    Window* const published = window(space);
    if (published != nullptr) published->write_begin();
    body(values(space));
    if (published != nullptr) published->commit();
  }
  // All values of a step have been written.
  virtual void step_done() {}
  // Values were written, in a step or by a load.
  virtual void values_changed() {}

 protected:
  [[nodiscard]] const std::vector<size_t>& spaces_of(const ddh_unit_use& use) const {
    return layout_.unit_uses[static_cast<size_t>(use.unit)];
  }

  // bytes() without this rank's segments, if windows are in pages that the ranks share; else 0.
  [[nodiscard]] uint64_t window_bytes_of_peers();

  const Host& host_;
  const ModelLayout& layout_;
  const ddh_attach_args& args_;
};

// A private copy of everything.
class ReplicatedParams final : public ParamStore {
 public:
  using ParamStore::ParamStore;
  [[nodiscard]] uint64_t publish_calls() override { return 0; }
  [[nodiscard]] SentBytes sent_bytes() override { return {}; }
  void materialize() override;
  void open(const ddh_unit_use&) override {}
  void close(const ddh_unit_use&) override {}
  [[nodiscard]] void* view(size_t space) const override { return buffers_[space].data(); }
  [[nodiscard]] void* values(size_t space) override { return buffers_[space].data(); }

 private:
  std::vector<Buffer> buffers_;  // per space
};

// All parameters, in windows to which each rank publishes its segment. `waits_at_step`: wait for the other ranks'
// segments at the end of the step instead of at the next use.
class PublishedParams final : public ParamStore {
 public:
  PublishedParams(const Host& host, const ModelLayout& layout, const ddh_attach_args& args, bool waits_at_step)
      : ParamStore(host, layout, args), waits_at_step_(waits_at_step), views_(layout.spaces.size()) {}
  [[nodiscard]] uint64_t shared_bytes() override { return window_bytes_of_peers(); }
  void materialize() override;
  void open(const ddh_unit_use& use) override;
  void close(const ddh_unit_use& use) override;
  [[nodiscard]] void* view(size_t space) const override { return views_[space]; }
  [[nodiscard]] Window* window(size_t space) override { return &windows_[space]; }
  void step_done() override;

 private:
  const bool waits_at_step_;
  std::deque<Window> windows_;  // per space
  std::vector<void*> views_;    // per space, while open
};

// Segments that are gathered while units use them. A derived class decides which spaces are open, and may define where
// segments are stored.
class GatheredStore : public ParamStore {
 public:
  using ParamStore::ParamStore;
  [[nodiscard]] uint64_t bytes() override;
  [[nodiscard]] uint64_t shared_bytes() override;
  [[nodiscard]] uint64_t pinned_bytes() override;
  [[nodiscard]] uint64_t publish_calls() override;
  [[nodiscard]] SentBytes sent_bytes() override;
  void materialize() override;
  void open(const ddh_unit_use& use) override { gather_for(use, gathered_); }
  void close(const ddh_unit_use& use) override { drop_after(use, gathered_); }
  [[nodiscard]] void* view(size_t space) const override { return gathered_.params.view(space); }
  [[nodiscard]] Window* window(size_t space) override;

 protected:
  // Full views, and their source if it is not only a window.
  struct Gathered {
    std::unique_ptr<ViewSource> source;
    GatheredParams params;
  };
  // Called with the real views, and in a dry run that finds their peak.
  virtual void gather_for(const ddh_unit_use& use, Gathered& gathered) const = 0;
  virtual void drop_after(const ddh_unit_use& use, Gathered& gathered) const = 0;
  // nullptr: only windows.
  [[nodiscard]] virtual std::unique_ptr<ViewSource> make_source() const { return nullptr; }
  // The calls that a source makes instead of a window's publish, or in addition; `dry` has run through a step.
  [[nodiscard]] virtual uint64_t source_calls(const Gathered&) const { return 0; }

  [[nodiscard]] ViewSource* source() { return gathered_.source.get(); }

 private:
  [[nodiscard]] Gathered dry() const;       // a dry run, until it is materialized
  [[nodiscard]] Gathered dry_step() const;  // after a step of the run's first program

  Gathered gathered_;
};

// A PrefetchPolicy decides which units are prefetched and which stay gathered.
class PrefetchedParams : public GatheredStore {
 public:
  PrefetchedParams(const Host& host, const ModelLayout& layout, const ddh_attach_args& args,
                   const PrefetchPolicy& policy)
      : GatheredStore(host, layout, args), policy_(policy) {}

 protected:
  void gather_for(const ddh_unit_use& use, Gathered& gathered) const override { policy_.open(use, gathered.params); }
  void drop_after(const ddh_unit_use& use, Gathered& gathered) const override { policy_.close(use, gathered.params); }

 private:
  const PrefetchPolicy policy_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
