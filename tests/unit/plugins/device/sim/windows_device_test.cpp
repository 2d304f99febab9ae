// SPDX-License-Identifier: Apache-2.0
//
// Windows and exchanges on a device with memory of its own, used from several streams: the window orders them, and the
// transport sees the host's memory alone. The device sim refuses every use that nothing orders.
#include <catch2/catch.hpp>
#include <cstring>
#include <optional>

#include "engine/services/memory/windows.hpp"
#include "fixtures/harness/throws.hpp"
#include "unit/plugins/device/sim/sim_fixture.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

// A transport for a world of one, which touches what it is given at once.
struct Alone {
  uint32_t caps = DDH_COMM_ORDERED_SUM | DDH_COMM_INITIAL;
  int calls = 0;
};

ddh_rc move_piece(ddh_inst* inst, const ddh_coll* c, ddh_err*) noexcept {
  ++reinterpret_cast<Alone*>(inst)->calls;
  if (c->recv != c->send) std::memmove(c->recv, c->send, c->counts[0] * ddh_dtype_bytes(c->dtype));
  return DDH_OK;
}
ddh_rc sum_piece(ddh_inst* inst, const ddh_coll* c, ddh_err* err) noexcept {
  if (c->initial == nullptr) return move_piece(inst, c, err);
  ++reinterpret_cast<Alone*>(inst)->calls;
  for (uint64_t i = 0; i < c->counts[0]; ++i)
    static_cast<float*>(c->recv)[i] = static_cast<const float*>(c->initial)[i] + static_cast<const float*>(c->send)[i];
  return DDH_OK;
}

ddh_comm_backend_api make_backend() {
  ddh_comm_backend_api t{};
  t.struct_size = sizeof t;
  t.world = [](ddh_inst* i) noexcept { return reinterpret_cast<ddh_group*>(i); };
  t.group_info = [](ddh_inst* i, ddh_group*, int32_t* rank, int32_t* size, uint32_t* caps,
                    ddh_err*) noexcept -> ddh_rc {
    *rank = 0, *size = 1, *caps = reinterpret_cast<Alone*>(i)->caps;
    return DDH_OK;
  };
  t.all_gather = move_piece;
  t.reduce_scatter = sum_piece;
  t.all_to_all = move_piece;
  return t;
}

struct Norm final : NormSink {
  std::vector<float> seen;
  const float* on_device = nullptr;  // the gradient, if the device sums squares
  bool can_sum_on_device = false;
  void add_gradient(const float* grad, uint64_t, uint64_t numel, std::span<const ddh_range>) override {
    seen.assign(grad, grad + numel);
  }
  [[nodiscard]] bool sums_on_device() const override { return can_sum_on_device; }
  void add_device_gradient(const float* grad, uint64_t, uint64_t, std::span<const ddh_range>, ddh_stream*) override {
    if (!can_sum_on_device)
      ddh::fail(DDH_INTERNAL, "a transport of host memory gave a gradient in memory of the device");
    on_device = grad;
  }
};

constexpr uint64_t kNumel = 128;

// One rank with its services on a device sim.
struct Rank {
  SimDevice plugin{{.delay_us = 200}};
  Device device{plugin.inst(), *plugin.table, DDH_CAP_HOST_REACHABLE, "sim", 0};
  Alone alone;
  ddh_comm_backend_api backend = make_backend();
  Clock clock;
  Memory memory;
  Comm comm{reinterpret_cast<ddh_inst*>(&alone), &backend, nullptr, clock};
  std::optional<Staging> staging;
  std::optional<Windows> windows;

  Rank() {
    memory.use(device);
    staging.emplace(memory);
    windows.emplace(comm, memory, *staging, WindowSettings{true, true, 1});
  }
  ~Rank() {
    windows.reset();
    staging.reset();
    memory.release_all();
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  ddh_stream* stream(const char* name) {
    ddh_stream* out = nullptr;
    ddh::call(device.streams().create, device.context(), name, &out);
    return out;
  }
  void fill(void* dst, double value, ddh_stream* stream) {
    ddh::call(device.flatops().fill, device.context(), dst, DDH_F32, kNumel, value, stream);
  }
  std::vector<float> read(const void* src, ddh_stream* stream) {
    std::vector<float> out(kNumel);
    device.copy(out.data(), DDH_MEM_HOST, src, DDH_MEM_DEVICE, kNumel * sizeof(float), stream);
    device.synchronize(stream);
    return out;
  }
};

}  // namespace

TEST_CASE("a window orders its writer and its readers on other streams", "[windows][sim]") {
  const uint32_t flags = GENERATE(0u, DDH_WINDOW_PERMANENT);
  Rank rank;
  ddh_stream* const writer = rank.stream("writer");
  ddh_stream* const reader = rank.stream("reader");
  ddh_stream* const second = rank.stream("second reader");
  const ddh_window_args args{sizeof args, DDH_F32, nullptr, &kNumel, "h.0", DDH_TAG_PARAM, flags};
  ddh_window* const w = rank.windows->create(args);
  void* const backing = rank.memory.allocate(DDH_TAG_PARAM, kNumel * sizeof(float), "backing");
  for (int epoch = 1; epoch <= 2; ++epoch) {
    w->write_begin(writer);
    rank.fill(w->segment(), epoch, writer);
    w->commit(writer);
    void* const view = w->open(backing, reader);
    CHECK(w->open(backing, second) == view);
    CHECK(rank.read(view, second)[kNumel - 1] == static_cast<float>(epoch));
    CHECK(rank.read(view, reader)[kNumel - 1] == static_cast<float>(epoch));
    w->close(second);
    w->close(reader);
  }
  // The control: without the window nothing orders them.
  rank.fill(w->segment(), 0, writer);
  CHECK_THAT(sentence_of([&] { rank.fill(w->segment(), 0, reader); }), Catch::Contains("nothing orders"));
}

TEST_CASE("an exchange orders gradients, their sum and the next ones, on three streams, whatever the transport offers",
          "[windows][sim]") {
  Rank rank;
  rank.alone.caps = GENERATE(DDH_COMM_ORDERED_SUM | DDH_COMM_INITIAL, DDH_COMM_ORDERED_SUM, 0u);
  const int32_t memory = GENERATE(DDH_MEM_DEVICE, DDH_MEM_PINNED);
  ddh_stream* const backward = rank.stream("backward");
  ddh_stream* const comm = rank.stream("comm");
  const ddh_exchange_args args{sizeof args, 0, nullptr, kNumel, "h.0"};
  ddh_exchange* const x = rank.windows->create_exchange(args);
  void* const sum = rank.memory.allocate(DDH_TAG_GRAD, kNumel * sizeof(float), "sum", memory);
  Norm norm;
  for (int micro = 1; micro <= 3; ++micro) {
    x->write_begin(backward);
    rank.fill(x->buffer(), micro, backward);
    x->ready(backward);
    const uint32_t flags = (micro > 1 ? DDH_REDUCE_ADD : 0) | (micro == 3 ? DDH_REDUCE_NORM | DDH_REDUCE_TO_ALL : 0);
    x->reduce({sizeof(ddh_reduce_args), flags, &kNumel, static_cast<float*>(sum), nullptr, 0, 0}, norm, comm);
  }
  x->wait(nullptr);
  CHECK(rank.read(x->buffer(), nullptr)[5] == 6);
  if (memory == DDH_MEM_DEVICE)
    CHECK(rank.read(sum, comm)[5] == 6);
  else
    CHECK(static_cast<const float*>(sum)[5] == 6);
  REQUIRE(norm.seen.size() == kNumel);
  CHECK(norm.seen[5] == 6);
  CHECK(rank.alone.calls == 4);  // three sums, one gather
}

TEST_CASE(
    "a rank that is alone sums its micro-batches in memory of the device, without the transport and without staging",
    "[windows][sim]") {
  Rank rank;
  const int32_t memory = GENERATE(DDH_MEM_DEVICE, DDH_MEM_PINNED);
  const ddh_exchange_args args{sizeof args, 0, nullptr, kNumel, "h.0"};
  ddh_exchange* const x = rank.windows->create_exchange(args);
  auto* const sum = static_cast<float*>(rank.memory.allocate(DDH_TAG_GRAD, kNumel * sizeof(float), "sum", memory));
  Norm norm;
  norm.can_sum_on_device = true;
  for (int micro = 1; micro <= 3; ++micro) {
    x->write_begin(nullptr);
    rank.fill(x->buffer(), micro, nullptr);
    x->ready(nullptr);
    const uint32_t flags = (micro > 1 ? DDH_REDUCE_ADD : 0) | (micro == 3 ? DDH_REDUCE_NORM | DDH_REDUCE_TO_ALL : 0);
    x->reduce({sizeof(ddh_reduce_args), flags, &kNumel, sum, nullptr, 0, 0}, norm, nullptr);
  }
  x->wait(nullptr);
  CHECK(rank.alone.calls == 0);
  CHECK(rank.memory.usage(DDH_TAG_COMM).peak_bytes == 0);
  CHECK(norm.on_device == sum);
  CHECK(norm.seen.empty());
  CHECK(rank.read(x->buffer(), nullptr)[kNumel - 1] == 6);
  CHECK((memory == DDH_MEM_DEVICE ? rank.read(sum, nullptr).at(5) : sum[5]) == 6);
}

TEST_CASE("adding a micro-batch needs no more staging if the sum is in host memory, else one segment",
          "[windows][sim]") {
  Rank rank;
  const int32_t memory = GENERATE(DDH_MEM_DEVICE, DDH_MEM_PINNED);
  const ddh_exchange_args args{sizeof args, 0, nullptr, kNumel, "h.0"};
  ddh_exchange* const x = rank.windows->create_exchange(args);
  auto* const sum = static_cast<float*>(rank.memory.allocate(DDH_TAG_GRAD, kNumel * sizeof(float), "sum", memory));
  Norm norm;
  const auto reduce = [&](uint32_t flags) {
    x->write_begin(nullptr);
    rank.fill(x->buffer(), 1, nullptr);
    x->ready(nullptr);
    x->reduce({sizeof(ddh_reduce_args), flags, &kNumel, sum, nullptr, 0, 0}, norm, nullptr);
    return rank.memory.usage(DDH_TAG_COMM).now_bytes;
  };
  constexpr uint64_t kBytes = kNumel * sizeof(float);
  CHECK(reduce(0) == kBytes);
  CHECK(reduce(DDH_REDUCE_ADD) == (memory == DDH_MEM_DEVICE ? 2 * kBytes : kBytes));
  rank.alone.caps = DDH_COMM_ORDERED_SUM;  // the host sums, and holds the pieces of all ranks
  CHECK_THAT(sentence_of([&] {
               ddh_exchange* const other = rank.windows->create_exchange(args);
               rank.backend.all_to_all = nullptr;
               other->ready(nullptr);
               other->reduce({sizeof(ddh_reduce_args), DDH_REDUCE_ADD, &kNumel, sum, nullptr, 0, 0}, norm, nullptr);
             }),
             Catch::Contains("DDH_COMM_INITIAL") && Catch::Contains("train.reduce_order=micro_first"));
}

TEST_CASE("staging grows to the largest use, and counts under comm", "[windows][sim]") {
  Rank rank;
  void* const small = rank.memory.allocate(DDH_TAG_PARAM, 64, "small");
  void* const large = rank.memory.allocate(DDH_TAG_PARAM, 4096, "large");
  CHECK(rank.memory.usage(DDH_TAG_COMM).now_bytes == 0);
  rank.fill(large, 3, nullptr);
  CHECK(*reinterpret_cast<const float*>(rank.staging->readable(large, 512, nullptr)) == 3);
  CHECK(rank.memory.usage(DDH_TAG_COMM).now_bytes == 512);
  char* const host = rank.staging->begin(small, 64);
  std::memset(host, 0, 64);
  rank.staging->store(small, host, 64, nullptr);
  CHECK(rank.staging->begin(large, 1024) != host);  // waits for the store first
  CHECK(rank.memory.usage(DDH_TAG_COMM).now_bytes == 1024);
  rank.staging->wait();
  CHECK_FALSE(rank.memory.is_host_memory(large));
  CHECK_FALSE(rank.memory.is_host_memory(static_cast<char*>(large) + 4095));
  CHECK(rank.memory.is_host_memory(&rank));
  CHECK(rank.memory.is_host_memory(host));
}
