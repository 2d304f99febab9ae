// SPDX-License-Identifier: Apache-2.0
//
// Structs of older and newer versions, placed before an inaccessible page. Neither the host's services nor the tables
// of SDK plugins read or write beyond struct_size. Unknown fields that a newer struct sets are refused, and so are
// reserved fields.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <vector>

#include "ddh/sdk/comm.hpp"
#include "ddh/sdk/model.hpp"
#include "ddh/sdk/monitor.hpp"
#include "ddh/sdk/optimizer.hpp"
#include "ddh/sdk/schedule.hpp"
#include "ddh/sdk/strategy.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "fixtures/harness/fake_host.hpp"
#include "fixtures/harness/host_services.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

// A struct of a later SDK version than the reader's: `later` was added after the first release.
struct Grown {
  uint32_t struct_size;
  int32_t first;
  int64_t later;
};

// `bytes` of memory that end at an inaccessible page.
class Edge {
 public:
  explicit Edge(size_t bytes) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), bytes_(bytes) {
    pages_ = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages_ != MAP_FAILED);
    REQUIRE(mprotect(static_cast<char*>(pages_) + page_, page_, PROT_NONE) == 0);
  }
  Edge(const Edge&) = delete;
  Edge& operator=(const Edge&) = delete;
  ~Edge() { munmap(pages_, 2 * page_); }
  [[nodiscard]] char* data() const { return static_cast<char*>(pages_) + page_ - bytes_; }

 private:
  size_t page_, bytes_;
  void* pages_ = nullptr;
};

// `value` as a struct of `bytes`, which may be fewer or more than this build's.
template <class T>
class AtEdge {
 public:
  AtEdge(const T& value, size_t bytes) : edge_(bytes) {
    std::memcpy(edge_.data(), &value, std::min(bytes, sizeof value));
    claim(static_cast<uint32_t>(bytes));
  }
  [[nodiscard]] T* get() const { return reinterpret_cast<T*>(edge_.data()); }
  void claim(uint32_t struct_size) const { std::memcpy(edge_.data(), &struct_size, sizeof struct_size); }
  void set_last_byte(size_t bytes) const { edge_.data()[bytes - 1] = 1; }

 private:
  Edge edge_;
};

// Calls `call` with the struct of the first release, of this build, and of a later build; then with a bit set beyond
// the fields that this build knows.
template <class T, class Call>
void meets_every_version(const T& value, Call&& call) {
  using Rule = ddh::StructRule<T>;
  INFO(Rule::name);
  constexpr size_t kLonger = sizeof(T) + 24;
  for (const size_t bytes : {static_cast<size_t>(Rule::min_size), sizeof(T), kLonger}) {
    INFO(bytes << " bytes");
    const AtEdge<T> arg(value, bytes);
    CHECK(sentence_of([&] { call(arg.get()); }) == "");
  }
  const AtEdge<T> newer(value, kLonger);
  newer.set_last_byte(kLonger);
  CHECK_THAT(sentence_of([&] { call(newer.get()); }),
             Catch::Contains(Rule::name) && Catch::Contains("is of a newer version"));
  const AtEdge<T> short_one(value, Rule::min_size);
  short_one.claim(Rule::min_size - 4);
  CHECK_THAT(sentence_of([&] { call(short_one.get()); }), Catch::Contains(std::string(Rule::name) + ".struct_size is"));
  for (const ddh::KnownBits& known : Rule::known_bits) {
    INFO(known.field);
    const AtEdge<T> odd(value, sizeof(T));
    const uint32_t all = ~0U;
    std::memcpy(reinterpret_cast<char*>(odd.get()) + known.offset, &all, sizeof all);
    CHECK_THAT(sentence_of([&] { call(odd.get()); }), Catch::Contains(std::string(Rule::name) + "." + known.field));
  }
}

// Calls `call` for a result in structs of several lengths. Bytes beyond the fields that this build knows must not
// change.
template <class T, class Call>
void fills_every_version(Call&& call) {
  using Rule = ddh::StructRule<T>;
  INFO(Rule::name);
  constexpr size_t kLonger = sizeof(T) + 24;
  for (const size_t bytes : {static_cast<size_t>(Rule::min_size), sizeof(T), kLonger}) {
    INFO(bytes << " bytes");
    const AtEdge<T> out(T{}, bytes);
    if (bytes == kLonger) out.set_last_byte(bytes);
    CHECK(sentence_of([&] { call(out.get()); }) == "");
    CHECK(out.get()->struct_size == bytes);
    if (bytes == kLonger) CHECK(reinterpret_cast<const char*>(out.get())[bytes - 1] == 1);
  }
  const AtEdge<T> unset(T{}, Rule::min_size);
  unset.claim(0);
  CHECK_THAT(sentence_of([&] { call(unset.get()); }), Catch::Contains(Rule::name));
}

}  // namespace

namespace ddh {
inline namespace v1 DDH_HIDDEN {
DDH_STRUCT_RULE(Grown, 8);
}  // namespace DDH_HIDDEN
}  // namespace ddh

TEST_CASE("a struct that has grown is read and written up to struct_size", "[abi]") {
  const Grown full{sizeof(Grown), 1, 2};
  meets_every_version(full, [&](const Grown* arg) {
    const uint32_t given = arg->struct_size;
    const Grown mine = ddh::copy_of(arg);
    CHECK(mine.struct_size == sizeof(Grown));
    CHECK(mine.first == 1);
    CHECK(mine.later == (given < sizeof(Grown) ? 0 : 2));
  });
  fills_every_version<Grown>([&](Grown* out) { ddh::copy_out(full, *out); });
  const AtEdge<Grown> old(Grown{}, 8);
  ddh::copy_out(full, *old.get());
  CHECK(old.get()->first == 1);
  const Grown unset{0xcdcdcdcd, 1, 2};
  CHECK_THAT(sentence_of([&] { ddh::copy_of(&unset); }), Catch::Contains("which no version has"));
  CHECK_THAT(sentence_of([&] { ddh::copy_of(static_cast<const Grown*>(nullptr)); }), Catch::Contains("Grown is NULL"));
}

namespace {

template <class... T>
void every_rule_bounds_reads_and_writes() {
  (meets_every_version(T{}, [](const T* arg) { static_cast<void>(ddh::copy_of(arg)); }), ...);
  (fills_every_version<T>([](T* out) { ddh::copy_out(T{}, *out); }), ...);
}

}  // namespace

TEST_CASE("every struct of the ABI that has a rule is read and written up to struct_size", "[abi]") {
  every_rule_bounds_reads_and_writes<
      ddh_build, ddh_desc, ddh_module, ddh_create, ddh_param_desc, ddh_buffer_desc, ddh_unit_desc, ddh_program_desc,
      ddh_model_desc, ddh_unit_view, ddh_batch_args, ddh_batch_info, ddh_unit_call, ddh_estimate_args, ddh_estimate,
      ddh_sample_args, ddh_update_args, ddh_prepare_args, ddh_step_block, ddh_slot_desc, ddh_optim_shard, ddh_op,
      ddh_run_program, ddh_attach_args, ddh_plan, ddh_unit_use, ddh_step_begin_args, ddh_state_entry, ddh_comm_init,
      ddh_device_info, ddh_device_usage, ddh_schedule_args, ddh_schedule_number, ddh_monitor_args, ddh_row,
      ddh_alloc_args, ddh_coll, ddh_window_args, ddh_exchange_args, ddh_reduce_args>();
}

TEST_CASE("the host's services take arguments of every version", "[abi]") {
  HostServices host("strategy:mine");
  const auto& alloc = host.table<ddh_alloc_api>(DDH_ALLOC_IFACE);
  meets_every_version(ddh_alloc_args{sizeof(ddh_alloc_args), DDH_TAG_GRAD, 64, DDH_MEM_HOST, DDH_ALLOC_ZERO, "x"},
                      [&](const ddh_alloc_args* args) {
                        void* block = nullptr;
                        ddh::call(alloc.allocate, host.h(), args, &block);
                        alloc.release(host.h(), block);
                      });

  const auto& comm = host.table<ddh_comm_api>(DDH_COMM_IFACE);
  float in = 3, out = 0;
  ddh_coll coll{};
  coll.dtype = DDH_F32, coll.op = DDH_SUM, coll.send = &in, coll.recv = &out, coll.count = 1;
  for (const auto slot : {comm.all_reduce, comm.all_gather, comm.reduce_scatter, comm.broadcast})
    meets_every_version(coll, [&](const ddh_coll* args) { ddh::call(slot, host.h(), args); });

  const auto& window = host.table<ddh_window_api>(DDH_WINDOW_IFACE);
  constexpr uint64_t kSegment = 64;
  meets_every_version(ddh_window_args{sizeof(ddh_window_args), DDH_F32, nullptr, &kSegment, "w", DDH_TAG_PARAM, 0},
                      [&](const ddh_window_args* args) {
                        ddh_window* made = nullptr;
                        ddh::call(window.create, host.h(), args, &made);
                        window.destroy(host.h(), made);
                      });
  meets_every_version(ddh_exchange_args{sizeof(ddh_exchange_args), 0, nullptr, kSegment, "x"},
                      [&](const ddh_exchange_args* args) {
                        ddh_exchange* made = nullptr;
                        ddh::call(window.exchange_create, host.h(), args, &made);
                        window.exchange_destroy(host.h(), made);
                      });
}

namespace {

ddh_create create_args(const FakeHost& host) { return {sizeof(ddh_create), 0, host.get(), "x", "x"}; }

class NullStrategy final : public ddh::Strategy {
 public:
  using Strategy::Strategy;
  void attach(const ddh_attach_args& args) override { CHECK(args.struct_size == sizeof args); }
  void plan(ddh_plan& out) override { out.param_bytes = 5; }
  void materialize() override {}
  void acquire(const ddh_unit_use&, ddh_unit_view& out) override { out.version = 6; }
  void release(const ddh_unit_use&) override {}
  void grads_ready(const ddh_unit_use&) override {}
  void step() override {}
  std::vector<ddh_state_entry> state() override {
    ddh_state_entry entry{};
    entry.struct_size = sizeof entry, entry.param = 7;
    return {entry, entry};
  }
  void state_commit() override {}
};

class NullModel final : public ddh::Model {
 public:
  using Model::Model;
  const ddh_model_desc& describe() override { return desc_; }
  ddh_batch* batch_create(const ddh_batch_args&, ddh_batch_info& info) override {
    info.items = 8;
    return nullptr;
  }
  void batch_destroy(ddh_batch*) noexcept override {}
  void forward(const ddh_unit_call&) override {}
  void backward(const ddh_unit_call&) override {}
  void metrics(int32_t, int32_t, double*, double*) override {}
  void discard(int32_t) noexcept override {}
  bool estimate(const ddh_estimate_args&, ddh_estimate& out) override {
    out.forward_flops = 9;
    return true;
  }
  [[nodiscard]] bool has_sampler() const override { return true; }

 private:
  ddh_model_desc desc_{};
};

class NullOptimizer final : public ddh::Optimizer {
 public:
  using Optimizer::Optimizer;
  void attach(const ddh_model_desc&) override {}
  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override { return slots_; }
  void update(const ddh_update_args& args) override { CHECK(args.shard->struct_size == sizeof(ddh_optim_shard)); }

 private:
  std::array<ddh_slot_desc, 1> slots_{{{sizeof(ddh_slot_desc), DDH_F32, "m", DDH_SLOT_PER_ELEMENT, 0}}};
};

class NullSchedule final : public ddh::Schedule {
 public:
  using Schedule::Schedule;
  void attach(const ddh_schedule_args& args) override { CHECK(args.struct_size == sizeof args); }
  [[nodiscard]] double lr(int64_t) const override { return 0; }
  [[nodiscard]] std::vector<Number> numbers() override { return {{"n", &n_}}; }

 private:
  double n_ = 0;
};

class NullMonitor final : public ddh::Monitor {
 public:
  using Monitor::Monitor;
  void begin(const ddh_monitor_args& args) override { CHECK(args.struct_size == sizeof args); }
  void row(const ddh_row& row) override { CHECK(values(row).empty()); }
};

class NullTransport final : public ddh::CommBackend {
 public:
  using CommBackend::CommBackend;
  void init(const ddh_comm_init&) override {}
  [[nodiscard]] ddh_group* world() override { return nullptr; }
  [[nodiscard]] ddh_group* group_create(const char*, const int32_t*, uint32_t) override { return nullptr; }
  void group_info(ddh_group*, int32_t&, int32_t&, uint32_t&) override {}
  void all_reduce(const ddh_coll&) override {}
  void reduce_scatter(const ddh_coll&) override {}
  void all_gather(const ddh_coll&) override {}
  void broadcast(const ddh_coll&) override {}
  void all_to_all(const ddh_coll&) override {}
  void send_to(const ddh_coll&) override {}
  void receive_from(const ddh_coll&) override {}
  void barrier(ddh_group*) override {}
  void abort(const char*) override {}
  void finalize() override {}
};

// A plugin's table, as the host gets it.
template <class Plugin, class Table>
struct Made {
  explicit Made(const char* id)
      : plugin(create_args(host)),
        inst(reinterpret_cast<ddh_inst*>(static_cast<ddh::Instance*>(&plugin))),
        table(static_cast<const Table*>(plugin.interface(id))) {}
  FakeHost host{{}};
  Plugin plugin;
  ddh_inst* inst;
  const Table* table;
};

}  // namespace

TEST_CASE("a NULL key, text, handle or output of a service's call is refused with its name", "[abi]") {
  HostServices host("strategy:mine");
  void* const h = host.h();
  const auto refused = [](const auto& call) { return sentence_of(call); };
  const auto& config = host.table<ddh_config_api>(DDH_CONFIG_IFACE);
  int64_t number = 0;
  const char* text = nullptr;
  CHECK_THAT(refused([&] { ddh::call(config.get_i64, h, nullptr, &number); }), Catch::Contains("the key is NULL"));
  CHECK_THAT(refused([&] { ddh::call(config.agree, h, nullptr, "x", &text); }), Catch::Contains("the key is NULL"));
  const auto& kv = host.table<ddh_kv_api>(DDH_KV_IFACE);
  uint64_t bytes = 8;
  CHECK_THAT(refused([&] { ddh::call(kv.set, h, nullptr, "x", uint64_t{1}); }), Catch::Contains("the key is NULL"));
  CHECK_THAT(refused([&] { ddh::call(kv.set, h, "k", nullptr, uint64_t{1}); }), Catch::Contains("the value is NULL"));
  ddh::call(kv.set, h, "k", "x", uint64_t{1});
  CHECK_THAT(refused([&] { ddh::call(kv.get, h, "k", nullptr, &bytes, 10U); }), Catch::Contains("the value is NULL"));
  CHECK_THAT(refused([&] { ddh::call(kv.get, h, "k", nullptr, nullptr, 10U); }), Catch::Contains("bytes is NULL"));
  host.table<ddh_log_api>(DDH_LOG_IFACE).write(h, DDH_LOG_INFO, nullptr);
  host.table<ddh_metrics_api>(DDH_METRICS_IFACE).count(h, nullptr, 1);
  char to = 0, from = 1;
  const auto& copies = host.table<ddh_copy_api>(DDH_COPY_IFACE);
  CHECK_THAT(refused([&] { ddh::call(copies.copy, h, &to, 7, &from, DDH_MEM_HOST, uint64_t{1}, nullptr); }),
             Catch::Contains("memory of an unknown kind"));
  ddh::call(copies.copy, h, &to, DDH_MEM_HOST, &from, DDH_MEM_HOST, uint64_t{1}, nullptr);
  CHECK(to == 1);
  const auto& window = host.table<ddh_window_api>(DDH_WINDOW_IFACE);
  CHECK_THAT(refused([&] { ddh::call(window.commit, h, nullptr, nullptr); }), Catch::Contains("the window is NULL"));
  CHECK_THAT(refused([&] { ddh::call(window.exchange_ready, h, nullptr, nullptr); }),
             Catch::Contains("the exchange is NULL"));
}

TEST_CASE("an exchange is made ready once and then reduced once", "[abi]") {
  HostServices host("strategy:mine");
  const auto& window = host.table<ddh_window_api>(DDH_WINDOW_IFACE);
  const ddh_exchange_args args{sizeof args, 0, nullptr, 64, "x"};
  ddh_exchange* x = nullptr;
  ddh::call(window.exchange_create, host.h(), &args, &x);
  ddh::call(window.exchange_ready, host.h(), x, nullptr);
  CHECK_THAT(sentence_of([&] { ddh::call(window.exchange_ready, host.h(), x, nullptr); }),
             Catch::Contains("made ready twice"));
  window.exchange_destroy(host.h(), x);
}

TEST_CASE("create of an SDK plugin takes arguments of every version", "[abi]") {
  const FakeHost host({});
  meets_every_version(create_args(host), [&](const ddh_create* args) {
    ddh_inst* inst = nullptr;
    ddh::call(&ddh::create_instance<NullStrategy>, args, &inst);
    ddh::destroy_instance(inst);
  });
}

TEST_CASE("a strategy of the SDK takes arguments and gives results of every version", "[abi]") {
  const Made<NullStrategy, ddh_strategy_api> s(DDH_STRATEGY_IFACE);
  meets_every_version(ddh_attach_args{},
                      [&](const ddh_attach_args* args) { ddh::call(s.table->attach, s.inst, args); });
  meets_every_version(ddh_step_begin_args{},
                      [&](const ddh_step_begin_args* args) { ddh::call(s.table->step_begin, s.inst, args); });
  ddh_unit_view view{};
  view.struct_size = sizeof view;
  meets_every_version(ddh_unit_use{}, [&](const ddh_unit_use* use) {
    ddh::call(s.table->acquire, s.inst, use, &view);
    ddh::call(s.table->grads_ready, s.inst, use);
    ddh::call(s.table->release, s.inst, use);
  });
  ddh_unit_use use{};
  use.struct_size = sizeof use;
  fills_every_version<ddh_plan>([&](ddh_plan* out) {
    ddh::call(s.table->plan, s.inst, out);
    CHECK(out->param_bytes == 5);
  });
  fills_every_version<ddh_unit_view>([&](ddh_unit_view* out) {
    ddh::call(s.table->acquire, s.inst, &use, out);
    CHECK(out->version == 6);
  });
  for (const size_t stride : {static_cast<size_t>(DDH_STATE_ENTRY_MIN_SIZE), sizeof(ddh_state_entry) + 16}) {
    const Edge entries(2 * stride);
    uint32_t n = 2;
    ddh::call(s.table->state, s.inst, reinterpret_cast<ddh_state_entry*>(entries.data()), uint64_t{stride}, &n);
    CHECK(n == 2);
    CHECK(reinterpret_cast<const ddh_state_entry*>(entries.data() + stride)->param == 7);
  }
}

TEST_CASE("a model of the SDK takes arguments and gives results of every version", "[abi]") {
  const Made<NullModel, ddh_model_api> m(DDH_MODEL_IFACE);
  ddh_batch* batch = nullptr;
  ddh_batch_info info{};
  info.struct_size = sizeof info;
  meets_every_version(ddh_batch_args{}, [&](const ddh_batch_args* args) {
    ddh::call(m.table->batch_create, m.inst, args, &batch, &info);
  });
  meets_every_version(ddh_unit_call{}, [&](const ddh_unit_call* call) {
    ddh::call(m.table->forward, m.inst, call);
    ddh::call(m.table->backward, m.inst, call);
  });
  ddh_estimate estimate{};
  estimate.struct_size = sizeof estimate;
  meets_every_version(ddh_estimate_args{},
                      [&](const ddh_estimate_args* args) { ddh::call(m.table->estimate, m.inst, args, &estimate); });
  const auto* sampler = static_cast<const ddh_sampler_api*>(m.plugin.interface(DDH_SAMPLER_IFACE));
  meets_every_version(ddh_sample_args{}, [&](const ddh_sample_args* args) { ddh::call(sampler->begin, m.inst, args); });
  ddh_batch_args batch_args{};
  batch_args.struct_size = sizeof batch_args;
  fills_every_version<ddh_batch_info>([&](ddh_batch_info* out) {
    ddh::call(m.table->batch_create, m.inst, &batch_args, &batch, out);
    CHECK(out->items == 8);
  });
  ddh_estimate_args estimate_args{};
  estimate_args.struct_size = sizeof estimate_args;
  fills_every_version<ddh_estimate>([&](ddh_estimate* out) {
    ddh::call(m.table->estimate, m.inst, &estimate_args, out);
    CHECK(out->forward_flops == 9);
  });
}

TEST_CASE("an optimizer of the SDK takes arguments and gives results of every version", "[abi]") {
  const Made<NullOptimizer, ddh_optimizer_api> o(DDH_OPTIMIZER_IFACE);
  ddh_optim_shard shard{};
  shard.struct_size = sizeof shard;
  ddh_step_block block{};
  block.struct_size = sizeof block;
  ddh_update_args update{};
  update.struct_size = sizeof update, update.shard = &shard, update.block = &block;
  meets_every_version(update, [&](const ddh_update_args* args) { ddh::call(o.table->update, o.inst, args); });
  meets_every_version(shard, [&](const ddh_optim_shard* args) {
    ddh_update_args with = update;
    with.shard = args;
    ddh::call(o.table->update, o.inst, &with);
  });
  meets_every_version(block, [&](const ddh_step_block* args) {
    ddh_update_args with = update;
    with.block = args;
    ddh::call(o.table->update, o.inst, &with);
  });
  ddh_prepare_args prepare{};
  prepare.update = &update;
  meets_every_version(prepare, [&](const ddh_prepare_args* args) { ddh::call(o.table->prepare, o.inst, args); });
  fills_every_version<ddh_slot_desc>([&](ddh_slot_desc* out) {
    ddh::call(o.table->slot, o.inst, 0u, out);
    CHECK(out->extent == DDH_SLOT_PER_ELEMENT);
  });
}

TEST_CASE("a schedule of the SDK takes arguments and gives results of every version", "[abi]") {
  const Made<NullSchedule, ddh_schedule_api> s(DDH_SCHEDULE_IFACE);
  meets_every_version(ddh_schedule_args{},
                      [&](const ddh_schedule_args* args) { ddh::call(s.table->attach, s.inst, args); });
  CHECK(s.table->number_count(s.inst) == 1);
  fills_every_version<ddh_schedule_number>([&](ddh_schedule_number* out) {
    ddh::call(s.table->number, s.inst, 0u, out);
    CHECK(std::string(out->name) == "n");
  });
}

TEST_CASE("a monitor of the SDK takes arguments of every version", "[abi]") {
  const Made<NullMonitor, ddh_monitor_api> m(DDH_MONITOR_IFACE);
  meets_every_version(ddh_monitor_args{},
                      [&](const ddh_monitor_args* args) { ddh::call(m.table->begin, m.inst, args); });
  ddh_row step{};
  step.kind = DDH_ROW_STEP;
  meets_every_version(step, [&](const ddh_row* row) { ddh::call(m.table->row, m.inst, row); });
  const ddh_row unknown{sizeof(ddh_row), 7, 1, nullptr, nullptr, 0, 0};
  CHECK_THAT(sentence_of([&] { ddh::call(m.table->row, m.inst, &unknown); }), Catch::Contains("rows of kind 7"));
}

TEST_CASE("a transport of the SDK takes arguments of every version", "[abi]") {
  const Made<NullTransport, ddh_comm_backend_api> c(DDH_COMM_BACKEND_IFACE);
  meets_every_version(ddh_comm_init{}, [&](const ddh_comm_init* args) { ddh::call(c.table->init, c.inst, args); });
  for (const auto slot : {c.table->all_reduce, c.table->all_to_all, c.table->send})
    meets_every_version(ddh_coll{}, [&](const ddh_coll* args) { ddh::call(slot, c.inst, args); });
}

TEST_CASE("a result of the device is never written beyond its struct_size", "[abi]") {
  HostServices host("strategy:mine");
  const ddh_module& cpu = ddhost::test::cpu_module();
  const Instance instance({&cpu, cpu.desc[0], "cpu"}, host.caller.host(), "device");
  const auto& table = instance.require<ddh_device_api>(DDH_DEVICE_IFACE, DDH_DEVICE_API_MIN_SIZE);
  fills_every_version<ddh_device_info>([&](ddh_device_info* out) {
    ddh::call(table.info, instance.get(), host.services.device->context(), out);
    CHECK(out->total_bytes > 0);
  });
}
