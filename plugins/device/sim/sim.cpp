// SPDX-License-Identifier: Apache-2.0
//
// sim: a device for tests on any machine. It has its own memory with a capacity, and streams with delays. It detects
// synchronization mistakes that a GPU often tolerates.
//
//   memory      host pages up to device.capacity_bytes; new blocks contain signalling NaNs, released ones are poisoned
//               and kept in quarantine, to detect late writes
//   streams     one thread each; device.delay_us and device.jitter_us before each piece of work
//   checks      (device.check) order between streams, use after release, ends of blocks, kinds of memory of copies. All
//               but late writes are checked when work is queued, so a mistake is found in every run
//
// There are no native kernels: code that computes declares it with ddh_stream.run.
#include "context.hpp"
#include "ddh/sdk/options.hpp"

namespace sim {
namespace {

class Sim final : public ddh::Device {
 public:
  explicit Sim(const ddh_create& create)
      : Device(create),
        settings_{
            static_cast<uint64_t>(host.i64("device.capacity_bytes")),
            static_cast<uint64_t>(host.i64("device.quarantine_bytes")),
            {host.i64("device.delay_us"), host.i64("device.jitter_us"), static_cast<uint64_t>(host.i64("device.seed"))},
            host.flag("device.check")} {}

  std::unique_ptr<ddh::OpenDevice> open(int32_t index) override {
    if (index != 0) ddh::fail(DDH_UNAVAILABLE, "there is one device 'sim', with index 0, not ", index);
    return std::make_unique<Context>(settings_,
                                     [this](const std::string& sentence) { host.log(DDH_LOG_ERROR, sentence); });
  }

 private:
  const Settings settings_;
};

constexpr ddh::Option kOptions[] = {
    {"capacity_bytes", "integer", "1073741824", R"("minimum": 1, "x-unit": "bytes")",
     "memory of the device, for each rank"},
    {"delay_us", "integer", "20", R"("minimum": 0, "maximum": 10000000, "x-unit": "microseconds")",
     "pause before each piece of work on a stream"},
    {"jitter_us", "integer", "0", R"("minimum": 0, "maximum": 10000000, "x-unit": "microseconds")",
     "largest random addition to each pause"},
    {"seed", "integer", "0", ddh::kAtLeast0, "seed of the jitter"},
    {"check", "boolean", "true", "",
     "detect unordered work, use after release, accesses beyond a block, wrong kinds of memory"},
    {"quarantine_bytes", "integer", "16777216", R"("minimum": 0, "x-unit": "bytes")",
     "released memory that is checked for late writes"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, DDH_LOG_IFACE, nullptr};

}  // namespace
}  // namespace sim

DDH_CXX_PLUGIN(sim::Sim, device, "sim", "0.1.0", "a device for tests: separate memory, delayed streams, checks",
               ddh::kSchemaOf<sim::kOptions>, sim::kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_HOST_REACHABLE);
