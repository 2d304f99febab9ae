// SPDX-License-Identifier: Apache-2.0
//
// launch/loader_record.cpp: a shared anonymous mapping; every text in it is written once.
#include "launch/loader_record.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr size_t kMostLoads = 96;

}  // namespace

// A text that is written once; a longer one loses its end.
template <size_t Capacity>
class LoaderRecord::Text {
 public:
  void set(std::string_view text) {
    if (claimed_.exchange(1) != 0) return;
    const size_t bytes = std::min(text.size(), text_.size());
    std::memcpy(text_.data(), text.data(), bytes);
    bytes_ = static_cast<uint32_t>(bytes);
    done_.store(1, std::memory_order_release);
  }
  [[nodiscard]] std::string_view view() const {
    return done_.load(std::memory_order_acquire) == 0 ? std::string_view() : std::string_view(text_.data(), bytes_);
  }
  [[nodiscard]] std::string get() const { return std::string(view()); }

 private:
  std::atomic<uint32_t> claimed_{0}, done_{0};
  uint32_t bytes_ = 0;
  std::array<char, Capacity> text_{};
};

struct LoaderRecord::Page {
  std::atomic<uint32_t> state{0}, current{0}, loads{0};
  std::atomic<int32_t> exit_code{1};
  Text<4096> failure;
  Text<size_t{1} << 17> libraries;
  Text<kMostFolderBytes> folder;
  std::array<Text<400>, kMostLoads> load_texts;
};

LoaderRecord::LoaderRecord()
    : memory_(::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
  if (memory_ == MAP_FAILED)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't allocate memory for the record of the loader: ", std::strerror(errno));
  new (memory_) Page;
}

LoaderRecord::~LoaderRecord() { ::munmap(memory_, sizeof(Page)); }

void LoaderRecord::set_state(State state) {
  page().state.store(static_cast<uint32_t>(state), std::memory_order_release);
}
LoaderRecord::State LoaderRecord::state() const {
  return static_cast<State>(page().state.load(std::memory_order_acquire));
}

void LoaderRecord::begin_load(std::string_view what) {
  const uint32_t number = page().loads.load(std::memory_order_relaxed) + 1;
  if (number <= kMostLoads) page().load_texts[number - 1].set(what);
  page().loads.store(number, std::memory_order_release);
  page().current.store(number, std::memory_order_release);
}
void LoaderRecord::end_load() { page().current.store(0, std::memory_order_release); }
uint32_t LoaderRecord::current_load() const { return page().current.load(std::memory_order_acquire); }

std::string_view LoaderRecord::current_text() const {
  const uint32_t number = current_load();
  if (number == 0) return "";
  return number <= kMostLoads ? page().load_texts[number - 1].view() : "loading a plugin";
}
std::string LoaderRecord::loading() const { return std::string(current_text()); }

void LoaderRecord::write_loading(char* text, size_t capacity) const {
  const std::string_view current = current_text().substr(0, capacity - 1);
  std::memcpy(text, current.data(), current.size());
  text[current.size()] = '\0';
}

std::string LoaderRecord::all_loads() const {
  std::string all;
  const uint32_t count = std::min<uint32_t>(page().loads.load(std::memory_order_acquire), kMostLoads);
  for (uint32_t i = 0; i < count; ++i) all += (i == 0 ? "" : ", ") + page().load_texts[i].get();
  return all;
}

void LoaderRecord::set_folder(std::string_view note) {
  if (note.size() > kMostFolderBytes)
    ddh::fail(DDH_INTERNAL, "the note about the run's folder takes ", note.size(), " bytes");
  page().folder.set(note);
}
std::string LoaderRecord::folder() const { return page().folder.get(); }

void LoaderRecord::set_libraries(const std::vector<std::string>& files) {
  std::string all;
  for (const std::string& file : files) all += file + '\0';
  page().libraries.set(all);
}
std::vector<std::string> LoaderRecord::libraries() const {
  std::vector<std::string> files;
  const std::string all = page().libraries.get();
  for (size_t at = 0, end = 0; (end = all.find('\0', at)) != std::string::npos; at = end + 1)
    files.push_back(all.substr(at, end - at));
  return files;
}

void LoaderRecord::set_failure(std::string_view sentence) { page().failure.set(sentence); }
std::string LoaderRecord::failure() const { return page().failure.get(); }

void LoaderRecord::end(int exit_code) {
  page().exit_code.store(exit_code, std::memory_order_relaxed);
  set_state(State::kEnded);
}
int LoaderRecord::exit_code() const { return page().exit_code.load(std::memory_order_relaxed); }

}  // namespace ddhost
