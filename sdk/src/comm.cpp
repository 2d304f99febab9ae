// SPDX-License-Identifier: Apache-2.0
//
// The C tables of a C++ transport.
#include "ddh/sdk/comm.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace {
template <void (CommBackend::*Collective)(const ddh_coll&)>
ddh_rc comm_collective(ddh_inst* i, const ddh_coll* args, ddh_err* err) noexcept {
  return guard(err, [&] { (self_as<CommBackend>(i).*Collective)(copy_of(args)); });
}
}  // namespace

void CommBackend::plan(const ddh_comm_init&, uint32_t, ddh_comm_plan&) {
  fail(DDH_UNIMPLEMENTED, "what a group of this transport takes is not known before it exists");
}

const void* CommBackend::interface(std::string_view id) const {
  static const ddh_comm_backend_api table = {
      sizeof(ddh_comm_backend_api),
      0,
      [](ddh_inst* i, const ddh_comm_init* args, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<CommBackend>(i).init(copy_of(*args)); });
      },
      [](ddh_inst* i) noexcept { return self_as<CommBackend>(i).world(); },
      [](ddh_inst* i, const char* name, const int32_t* ranks, uint32_t n, ddh_group** out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = self_as<CommBackend>(i).group_create(name, ranks, n); });
      },
      [](ddh_inst* i, ddh_group* group, int32_t* rank, int32_t* size, uint32_t* caps, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<CommBackend>(i).group_info(group, *rank, *size, *caps); });
      },
      comm_collective<&CommBackend::all_reduce>,
      comm_collective<&CommBackend::reduce_scatter>,
      comm_collective<&CommBackend::all_gather>,
      comm_collective<&CommBackend::broadcast>,
      comm_collective<&CommBackend::all_to_all>,
      comm_collective<&CommBackend::send_to>,
      comm_collective<&CommBackend::receive_from>,
      [](ddh_inst* i, ddh_group* group, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<CommBackend>(i).barrier(group); });
      },
      [](ddh_inst* i, const char* reason) noexcept { guard(nullptr, [&] { self_as<CommBackend>(i).abort(reason); }); },
      [](ddh_inst* i, ddh_err* err) noexcept { return guard(err, [&] { self_as<CommBackend>(i).finalize(); }); },
      [](ddh_inst* i, ddh_group* group, void* p, uint64_t bytes) noexcept {
        guard(nullptr, [&] { self_as<CommBackend>(i).buffer_register(group, p, bytes); });
      },
      [](ddh_inst* i, ddh_group* group, void* p) noexcept {
        guard(nullptr, [&] { self_as<CommBackend>(i).buffer_unregister(group, p); });
      },
      [](ddh_inst* i, ddh_group* group, uint64_t bytes, void** out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = self_as<CommBackend>(i).buffer_allocate(group, bytes); });
      },
      [](ddh_inst* i, ddh_group* group, void* p) noexcept {
        guard(nullptr, [&] { self_as<CommBackend>(i).buffer_release(group, p); });
      },
      [](ddh_inst* i, ddh_err* err) noexcept { return guard(err, [&] { self_as<CommBackend>(i).check(); }); },
      [](ddh_inst* i, const ddh_comm_init* args, uint32_t n_ranks, ddh_comm_plan* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          ddh_comm_plan mine{};
          self_as<CommBackend>(i).plan(copy_of(*args), n_ranks, mine);
          copy_out(mine, *out);
        });
      },
  };
  return id == DDH_COMM_BACKEND_IFACE ? &table : nullptr;
}

const void* CommShared::interface(std::string_view id) const {
  static const ddh_comm_shared_api table = {
      sizeof(ddh_comm_shared_api),
      0,
      [](ddh_inst* i, ddh_group* group, const char* name, uint64_t bytes, void** base, ddh_region** out,
         ddh_err* err) noexcept {
        return guard(err, [&] { *out = self_as<CommShared>(i).region_create(group, name, bytes, *base); });
      },
      [](ddh_inst* i, ddh_region* region) noexcept {
        guard(nullptr, [&] { self_as<CommShared>(i).region_destroy(region); });
      },
      [](ddh_inst* i, ddh_group* group, uint32_t n, uint32_t* first, ddh_err* err) noexcept {
        return guard(err, [&] { *first = self_as<CommShared>(i).marks_create(group, n); });
      },
      [](ddh_inst* i, ddh_group* group, uint32_t mark, uint64_t value) noexcept {
        guard(nullptr, [&] { self_as<CommShared>(i).mark_set(group, mark, value); });
      },
      [](ddh_inst* i, ddh_group* group, int32_t peer, uint32_t mark, uint64_t value, const char* what,
         ddh_err* err) noexcept {
        return guard(err, [&] { self_as<CommShared>(i).mark_wait(group, peer, mark, value, what); });
      },
  };
  return id == DDH_COMM_SHARED_IFACE ? &table : CommBackend::interface(id);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
