// SPDX-License-Identifier: Apache-2.0
//
// Uploads and results through pinned memory. On the stand-in for the driver queued work runs as late as the events allow, and
// memory that is freed has no data any more.
#include <catch2/catch.hpp>

#include "ddh/sdk/memory/staging.hpp"
#include "gpu/cuda_fixture.hpp"

using namespace ddhost::test;

namespace {

// A host whose services are those of the device alone. It counts blocks of pinned memory.
class DeviceHost {
 public:
  explicit DeviceHost(CudaDevice& gpu) : raw_{sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, gpu.context, table} {
    gpu_ = &gpu;
    n_allocated() = 0;
  }
  [[nodiscard]] ddh::Host host() const { return ddh::Host(&raw_); }
  static int& n_allocated() {
    static int n = 0;
    return n;
  }

 private:
  static const void* table(void*, const char* id) noexcept {
    static const ddh_alloc_api blocks = {sizeof(ddh_alloc_api), 0,
                                         [](void* h, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
                                           ++n_allocated();
                                           return gpu_->table->allocate(h, args, out, err);
                                         },
                                         [](void* h, void* p) noexcept { gpu_->table->release(h, p, DDH_MEM_PINNED); },
                                         nullptr};
    const std::string_view name = id;
    if (name == DDH_STREAM_IFACE) return gpu_->table->stream;
    if (name == DDH_COPY_IFACE) return gpu_->table->copy;
    return name == DDH_ALLOC_IFACE ? &blocks : nullptr;
  }
  static inline CudaDevice* gpu_ = nullptr;
  const ddh_host raw_;
};

std::vector<float> sequence(float first, size_t n) {
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = first + static_cast<float>(i);
  return out;
}

constexpr size_t kNumel = 100;
constexpr uint64_t kBytes = kNumel * sizeof(float);

}  // namespace

TEST_CASE("uploads in a row keep their data, and use two blocks of pinned memory", "[gpu]") {
  CudaDevice gpu;
  const DeviceHost services(gpu);
  const ddh::Host host = services.host();
  constexpr int kUploads = 7;
  std::vector<float*> to(kUploads);
  for (float*& p : to) p = static_cast<float*>(gpu.allocate(kBytes));
  ddh::PinnedUploads uploads(host);
  for (int i = 0; i < kUploads; ++i) {
    std::vector<float> from = sequence(1000.0F * static_cast<float>(i), kNumel);
    uploads.queue({{to[static_cast<size_t>(i)], from.data(), kBytes / 2},
                   {to[static_cast<size_t>(i)] + kNumel / 2, from.data() + kNumel / 2, kBytes / 2}},
                  gpu.streams[0]);
    std::fill(from.begin(), from.end(), -1.0F);  // the original has ended
  }
  CHECK(DeviceHost::n_allocated() == 2);
  for (int i = 0; i < kUploads; ++i)
    CHECK(gpu.read(to[static_cast<size_t>(i)], kNumel, gpu.streams[0]) ==
          sequence(1000.0F * static_cast<float>(i), kNumel));
}

TEST_CASE("uploads without a result behind them are complete when their object has ended", "[gpu]") {
  CudaDevice gpu;
  const DeviceHost services(gpu);
  const ddh::Host host = services.host();
  auto* const to = static_cast<float*>(gpu.allocate(2 * kBytes));
  {
    ddh::PinnedUploads uploads(host);
    const std::vector<float> from = sequence(1, 2 * kNumel);
    uploads.queue({{to, from.data(), kBytes}}, gpu.streams[0]);
    uploads.queue({{to + kNumel, from.data() + kNumel, kBytes}}, gpu.streams[1]);
  }
  ddh::call(gpu.table->stream->synchronize, gpu.context, gpu.streams[1]);
  CHECK(gpu.read(to, 2 * kNumel, gpu.streams[0]) == sequence(1, 2 * kNumel));
}

TEST_CASE("a larger upload waits for the copy out of the block that it replaces", "[gpu]") {
  CudaDevice gpu;
  const DeviceHost services(gpu);
  const ddh::Host host = services.host();
  auto *const small = static_cast<float*>(gpu.allocate(kBytes)),
              *const other = static_cast<float*>(gpu.allocate(kBytes)),
              *const large = static_cast<float*>(gpu.allocate(8 * kBytes));
  ddh::PinnedUploads uploads(host);
  const std::vector<float> from = sequence(5, 8 * kNumel);
  uploads.queue({{small, from.data(), kBytes}}, gpu.streams[0]);
  uploads.queue({{other, from.data(), kBytes}}, gpu.streams[0]);
  uploads.queue({{large, from.data(), 8 * kBytes}}, gpu.streams[0]);
  CHECK(gpu.read(small, kNumel, gpu.streams[0]) == sequence(5, kNumel));
  CHECK(gpu.read(large, 8 * kNumel, gpu.streams[0]) == from);
}

TEST_CASE("a result is what was sent last, and its memory lives until the copy is done", "[gpu]") {
  CudaDevice gpu;
  const DeviceHost services(gpu);
  const ddh::Host host = services.host();
  const std::vector<float> first = sequence(3, kNumel), second = sequence(70, kNumel);
  const float *const a = gpu.upload(first), *const b = gpu.upload(second);
  ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
  ddh::PinnedResult result(host);
  result.send(a, kBytes, gpu.streams[0]);
  result.send(b, kBytes, gpu.streams[1]);
  ddh::call(gpu.table->stream->synchronize, gpu.context, gpu.streams[1]);
  for (int i = 0; i < 2; ++i) CHECK(std::memcmp(result.read(), second.data(), kBytes) == 0);
  result.send(a, kBytes, gpu.streams[0]);  // and nobody reads it
}
