// SPDX-License-Identifier: Apache-2.0
//
// loop: ranks are threads of one process. Shared memory is anonymous pages. If one rank dies, all ranks die.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "ddh/sdk/memory/free_memory.hpp"
#include "transport.hpp"

namespace same_host {
namespace {

// Pages that are freed with their last user.
class Pages {
 public:
  Pages(const std::string& what, uint64_t bytes) : bytes_(bytes) {
    ddh::require_memory(what, bytes);
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED) {
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "no memory for ", what, " of ", bytes, " bytes: ", std::strerror(errno),
                "; use a smaller model or batch");
    }
    base_ = static_cast<std::byte*>(p);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(base_, bytes_); }
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  std::byte* base_ = nullptr;
  uint64_t bytes_;
};

class PagesMapping final : public Mapping {
 public:
  explicit PagesMapping(std::shared_ptr<Pages> pages)
      : Mapping(pages->base(), pages->bytes()), pages_(std::move(pages)) {}

 private:
  std::shared_ptr<Pages> pages_;
};

class PagesOffer final : public Offer {
 public:
  explicit PagesOffer(std::shared_ptr<Pages> pages) : pages_(std::move(pages)) {}
  [[nodiscard]] Ticket ticket() const override { return {0, reinterpret_cast<uint64_t>(&pages_)}; }

 private:
  std::shared_ptr<Pages> pages_;
};

class ThreadMemory final : public Memory {
 public:
  Created create(const std::string& what, uint64_t bytes) override {
    auto pages = std::make_shared<Pages>(what, bytes);
    return {std::make_unique<PagesMapping>(pages), std::make_unique<PagesOffer>(pages)};
  }
  std::unique_ptr<Mapping> attach(const Ticket& ticket, const std::string&, uint64_t) override {
    // The handle is an address of this very process. NOLINTNEXTLINE(performance-no-int-to-ptr)
    return std::make_unique<PagesMapping>(*reinterpret_cast<const std::shared_ptr<Pages>*>(ticket.handle));
  }
  bool died(int32_t, int64_t) override { return false; }
};

class Loop final : public Transport {
 public:
  explicit Loop(const ddh_create& create) : Transport(create, std::make_unique<ThreadMemory>()) {}
};

constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, DDH_KV_IFACE, nullptr};
// Memory is counted where the host gives the service.
constexpr const char* kWants[] = {DDH_CONFIG_IFACE, DDH_LOG_IFACE, DDH_METRICS_IFACE, DDH_ALLOC_IFACE, nullptr};

}  // namespace
}  // namespace same_host

DDH_CXX_PLUGIN(same_host::Loop, comm, "loop", "0.1.0", "ranks are threads of one process",
               ddh::kSchemaOf<same_host::kOptions>, same_host::kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_RANKS_ARE_THREADS | DDH_CAP_SINGLE_HOST, .wants = same_host::kWants);
