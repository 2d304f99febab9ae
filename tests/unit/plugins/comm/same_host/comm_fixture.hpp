// SPDX-License-Identifier: Apache-2.0
//
// tests/unit/comm_fixture.hpp: worlds of ranks over the linked-in transports loop (threads) and shm (forked processes). A
// test is a body that every rank runs; what it throws is that rank's failure, for Catch2 to look at afterwards.
#pragma once

#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "ddh/sdk/collective.hpp"
#include "fixtures/harness/fake_host.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_loop(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;
DDH_EXTERN_C ddh_rc ddh_entry_shm(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

namespace ddhost::test {

// Throws with the parts as sentence unless `holds`.
template <class... Parts>
void expect(bool holds, const Parts&... parts) {
  if (!holds) throw std::runtime_error(ddh::str(parts...));
}

struct WorldOptions {
  uint32_t reduce_block = 0;     // 0 = one block
  int64_t staging_bytes = 4096;  // small, so that moderate sizes take many chunks
  int64_t spin_us = 20;
  std::string bypass_caches = "auto";
};

// One rank of a world: an instance of the transport behind its C tables.
class CommRank {
 public:
  CommRank(ddh_plugin_entry_fn entry, int32_t my_rank, int32_t world_size, uint64_t run_id, const WorldOptions& options,
           std::shared_ptr<FakeKv> kv)
      : rank(my_rank),
        size(world_size),
        init_args_{sizeof(ddh_comm_init),
                   my_rank,
                   world_size,
                   options.reduce_block == 0 ? static_cast<uint32_t>(world_size) : options.reduce_block,
                   run_id,
                   0,
                   my_rank,
                   0,
                   1,
                   nullptr,
                   nullptr,
                   nullptr,
                   nullptr,
                   120'000,
                   0},
        host_({{"comm.spin_us", options.spin_us},
               {"comm.staging_bytes", options.staging_bytes},
               {"comm.bypass_caches", options.bypass_caches}},
              std::move(kv)) {
    ddh::call(entry, host_.get(), &module_);
    const ddh_create create{sizeof(ddh_create), 0, host_.get(), module_->desc[0]->id, "comm"};
    ddh::call(module_->create, &create, &inst);
    backend = static_cast<const ddh_comm_backend_api*>(module_->get_interface(inst, DDH_COMM_BACKEND_IFACE));
    shared = static_cast<const ddh_comm_shared_api*>(module_->get_interface(inst, DDH_COMM_SHARED_IFACE));
  }
  CommRank(const CommRank&) = delete;
  CommRank& operator=(const CommRank&) = delete;
  ~CommRank() { module_->destroy(inst); }

  void init() const { ddh::call(backend->init, inst, &init_args_); }
  void finalize() const { ddh::call(backend->finalize, inst); }
  [[nodiscard]] ddh_group* world() const { return backend->world(inst); }
  [[nodiscard]] ddh_group* group(const char* name, const std::vector<int32_t>& ranks) const {
    ddh_group* out = nullptr;
    ddh::call(backend->group_create, inst, name, ranks.data(), static_cast<uint32_t>(ranks.size()), &out);
    return out;
  }
  void barrier() const { ddh::call(backend->barrier, inst, world()); }
  // Arguments of a collective of the world.
  [[nodiscard]] ddh_coll coll(int32_t dtype, const void* send, void* recv, uint64_t count,
                              const uint64_t* counts = nullptr) const {
    ddh_coll c = ddh::collective(dtype, "test");
    c.op = DDH_SUM;
    c.send = send;
    c.recv = recv;
    c.count = count;
    c.counts = counts;
    c.group = world();
    return c;
  }
  using Collective = ddh_rc (*)(ddh_inst*, const ddh_coll*, ddh_err*);
  void run(Collective collective, const ddh_coll& c) const { ddh::call(collective, inst, &c); }
  template <class T>
  T* region(const char* name, uint64_t bytes, ddh_group* of, ddh_region** handle = nullptr) const {
    void* base = nullptr;
    ddh_region* mine = nullptr;
    ddh::call(shared->region_create, inst, of, name, bytes, &base, &mine);
    if (handle != nullptr) *handle = mine;
    return static_cast<T*>(base);
  }
  [[nodiscard]] uint32_t marks(uint32_t n) const {
    uint32_t first = 0;
    ddh::call(shared->marks_create, inst, world(), n, &first);
    return first;
  }
  void mark_set(uint32_t mark, uint64_t value) const { shared->mark_set(inst, world(), mark, value); }
  void mark_wait(int32_t peer, uint32_t mark, uint64_t value) const {
    ddh::call(shared->mark_wait, inst, world(), peer, mark, value, "a test's mark");
  }

  const int32_t rank, size;
  ddh_inst* inst = nullptr;
  const ddh_comm_backend_api* backend = nullptr;
  const ddh_comm_shared_api* shared = nullptr;

 private:
  const ddh_comm_init init_args_;
  FakeHost host_;
  const ddh_module* module_ = nullptr;
};

// What `body` fails with: code and sentence; {DDH_OK, ""} when it doesn't fail.
struct Failure {
  ddh_rc code = DDH_OK;
  std::string sentence;
  [[nodiscard]] bool names(const std::string& word) const { return sentence.find(word) != std::string::npos; }
};
template <class Body>
Failure failure_of(Body&& body) {
  try {
    body();
  } catch (const ddh::Error& e) {
    return {e.code(), e.what()};
  }
  return {};
}

struct TransportUnderTest {
  const char* name;
  ddh_plugin_entry_fn entry;
  bool processes;
};
inline const TransportUnderTest kLoop{"loop", ddh_entry_loop, false};
inline const TransportUnderTest kShm{"shm", ddh_entry_shm, true};

using RankBody = std::function<void(CommRank&)>;

inline std::string outcome_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

// Runs `body` on every rank of a world that is not yet initialized; gives each rank's failure ("" = none).
inline std::vector<std::string> run_ranks(const TransportUnderTest& transport, int32_t size, const RankBody& body,
                                          const WorldOptions& options = {}) {
  static std::atomic<uint64_t> next_run{1};
  const uint64_t run_id = next_run++;
  const auto kv = std::make_shared<FakeKv>();
  const auto run_rank = [&](int32_t rank) {
    return outcome_of([&] {
      CommRank mine(transport.entry, rank, size, run_id, options, kv);
      body(mine);
    });
  };
  std::vector<std::string> failures(static_cast<size_t>(size));
  if (!transport.processes) {
    std::vector<std::thread> threads;
    for (int32_t r = 0; r < size; ++r) threads.emplace_back([&, r] { failures[static_cast<size_t>(r)] = run_rank(r); });
    for (std::thread& thread : threads) thread.join();
    return failures;
  }
  struct Outcomes {
    char text[16][1000];
  };
  const ForkShared<Outcomes> outcomes;
  std::vector<pid_t> children;
  for (int32_t r = 0; r < size; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      const std::string failure = run_rank(r);
      std::strncpy(outcomes->text[r], failure.c_str(), sizeof outcomes->text[r] - 1);
      _exit(0);
    }
    children.push_back(child);
  }
  for (size_t r = 0; r < children.size(); ++r) {
    int status = 0;
    waitpid(children[r], &status, 0);
    failures[r] = WIFSIGNALED(status) ? ddh::str("signal ", WTERMSIG(status)) : std::string(outcomes->text[r]);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) failures[r] = ddh::str("exit code ", WEXITSTATUS(status));
  }
  return failures;
}

// The same with init before and finalize after the body; no rank may fail.
inline void require_world(const TransportUnderTest& transport, int32_t size, const RankBody& body,
                          const WorldOptions& options = {}) {
  const RankBody whole = [&](CommRank& c) {
    c.init();
    try {
      body(c);
    } catch (const std::exception& e) {
      c.backend->abort(c.inst, e.what());  // the peers must not wait for this rank
      throw;
    }
    c.finalize();
  };
  const std::vector<std::string> failures = run_ranks(transport, size, whole, options);
  INFO(transport.name << ", " << size << " ranks");
  CHECK(failures == std::vector<std::string>(static_cast<size_t>(size)));
}

}  // namespace ddhost::test
