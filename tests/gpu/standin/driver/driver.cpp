// SPDX-License-Identifier: Apache-2.0
#include "driver/driver.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

namespace standin {
namespace {

std::string setting(const char* name, const char* otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr ? otherwise : given;
}

Order order() { return setting("DDHOST_STANDIN_ORDER", "late") == "late" ? Order::late : Order::random; }
uint64_t seed() { return std::strtoull(setting("DDHOST_STANDIN_ORDER", "0").c_str(), nullptr, 10); }

constexpr int kInstance = 0x80;  // in the UUID of an instance (MIG) of a GPU

struct Shown {
  int index;
  bool is_instance;
};

// The one GPU, or instance of one, whose name begins with `word`: GPU-01010101-..., MIG-81818181-...
std::optional<Shown> named(const std::string& word, int n_gpus) {
  std::vector<Shown> found;
  for (int i = 0; i < n_gpus; ++i)
    for (const bool is_instance : {false, true}) {
      char two[3];
      std::snprintf(two, sizeof two, "%02x", static_cast<uint8_t>((is_instance ? kInstance : 0) + i + 1));
      std::string name = is_instance ? "MIG-" : "GPU-";
      for (const int bytes : {4, 2, 2, 2, 6}) {
        if (name.size() > 4) name += '-';
        for (int b = 0; b < bytes; ++b) name += two;
      }
      if (word.size() > 4 && name.starts_with(word)) found.push_back({i, is_instance});
    }
  return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

// The GPUs that CUDA_VISIBLE_DEVICES shows: a list of numbers and names that ends at the first one that is not there. Of
// instances a driver shows one.
std::vector<Shown> visible(int n_gpus) {
  std::vector<Shown> out;
  const char* const given = std::getenv("CUDA_VISIBLE_DEVICES");
  if (given == nullptr) {
    for (int i = 0; i < n_gpus; ++i) out.push_back({i, false});
    return out;
  }
  std::set<int> seen;
  std::istringstream in(given);
  for (std::string word; std::getline(in, word, ',');) {
    char* end = nullptr;
    const long index = std::strtol(word.c_str(), &end, 10);
    std::optional<Shown> found = named(word, n_gpus);
    if (!word.empty() && *end == '\0' && index >= 0 && index < n_gpus) found = Shown{static_cast<int>(index), false};
    if (!found) break;
    if (!seen.insert(found->index).second) return {};  // the driver shows none then
    out.push_back(*found);
    if (found->is_instance) return {*found};
  }
  return out;
}

}  // namespace

int version() { return std::atoi(setting("DDHOST_STANDIN_VERSION", "13000").c_str()); }

std::pair<int, int> compute_capability() {
  std::pair<int, int> out;
  std::sscanf(setting("DDHOST_STANDIN_CAPABILITY", "8.0").c_str(), "%d.%d", &out.first, &out.second);
  return out;
}

size_t most_streams() { return std::strtoull(setting("DDHOST_STANDIN_STREAMS", "1000000").c_str(), nullptr, 10); }

Driver::Driver() : queues(order(), seed()) {}

Driver& Driver::get() {
  // Never destroyed: threads may still call when the process ends.
  static Driver& driver = *std::unique_ptr<Driver>(new Driver).release();
  return driver;
}

bool Driver::is_initialized() const { return initialized_in_ == ::getpid(); }

CUresult Driver::initialize() {
  if (const int broken = std::atoi(setting("DDHOST_STANDIN_INIT", "0").c_str()); broken != 0)
    return static_cast<CUresult>(broken);
  if (is_initialized()) return CUDA_SUCCESS;
  if (initialized_in_ != 0) return CUDA_ERROR_NOT_INITIALIZED;  // forked after cuInit, as on a GPU
  const int n_gpus = std::atoi(setting("DDHOST_STANDIN_GPUS", "1").c_str());
  const uint64_t bytes = std::strtoull(setting("DDHOST_STANDIN_BYTES", "268435456").c_str(), nullptr, 10);
  for (const auto& [index, is_instance] : visible(n_gpus))
    gpus.push_back(std::make_unique<Gpu>(index, (is_instance ? kInstance : 0) + index + 1, bytes));
  if (gpus.empty()) return CUDA_ERROR_NO_DEVICE;
  initialized_in_ = ::getpid();
  return CUDA_SUCCESS;
}

void* Driver::reach(int device, uint64_t address, uint64_t bytes) {
  if (pinned.holds(address, bytes)) return reinterpret_cast<void*>(address);
  return gpus[static_cast<size_t>(device)]->memory.reach(address, bytes);
}

void* Driver::copy_place(uint64_t address, uint64_t bytes) {
  for (const auto& gpu : gpus)
    if (gpu->memory.owns(address)) return gpu->memory.reach(address, bytes);
  return reinterpret_cast<void*>(address);
}

std::optional<CUmemorytype> Driver::memory_type(uint64_t address) {
  if (pinned.holds(address, 1)) return CU_MEMORYTYPE_HOST;
  for (const auto& gpu : gpus)
    if (gpu->memory.reach(address, 1) != nullptr) return CU_MEMORYTYPE_DEVICE;
  return std::nullopt;
}

bool Driver::is_asynchronous(uint64_t address, uint64_t bytes) {
  if (pinned.holds(address, bytes)) return true;
  for (const auto& gpu : gpus)
    if (gpu->memory.owns(address)) return true;
  return false;
}

void Driver::report_waits() const {
  const bool any_held = std::any_of(gpus.begin(), gpus.end(), [](const auto& gpu) { return gpu->retained > 0; });
  const std::string file = setting("DDHOST_STANDIN_WAITS", "");
  if (!any_held && !file.empty()) std::ofstream(file, std::ios::app) << std::to_string(host_waits) + "\n";
}

void Driver::fault(const std::string& sentence, CUresult result) {
  std::fprintf(stderr, "stand-in GPU: %s\n", sentence.c_str());
  if (sticky == CUDA_SUCCESS) sticky = result;
}

}  // namespace standin
