// SPDX-License-Identifier: Apache-2.0
//
// launch/loader_record.hpp: what the loader tells the launcher. The loader is a child of the launcher that loads the
// plugins, so that code of a plugin never runs in the launcher, and starts the ranks. The record is shared memory,
// which survives the loader: whatever ends it, the launcher can say what it was doing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddhost {

class LoaderRecord {
 public:
  enum class State : uint32_t {
    kPreparing,       // loads plugins and prepares the run
    kRanksAreOthers,  // has started all ranks as processes and ends
    kRanksAreHere,    // is the process whose threads are the ranks
    kEnded,           // there are no ranks: exit_code and failure say why
  };

  LoaderRecord();
  LoaderRecord(const LoaderRecord&) = delete;
  LoaderRecord& operator=(const LoaderRecord&) = delete;
  ~LoaderRecord();

  void set_state(State state);
  [[nodiscard]] State state() const;

  // From here on a library's own code runs: "loading strategy 'x'".
  void begin_load(std::string_view what);
  void end_load();
  // Counts the loads; 0: no library is being loaded.
  [[nodiscard]] uint32_t current_load() const;
  // The text of the current load; "": none.
  [[nodiscard]] std::string loading() const;
  // The same into a buffer, with a NUL. Safe in signal handlers.
  void write_loading(char* text, size_t capacity) const;
  // All loads that have begun, as "loading a, loading b".
  [[nodiscard]] std::string all_loads() const;

  // Each of these is written once; further calls do nothing.
  // What the launcher needs to clean up the run's folder. Error: it is longer than kMostFolderBytes.
  static constexpr size_t kMostFolderBytes = size_t{1} << 17;
  void set_folder(std::string_view note);
  [[nodiscard]] std::string folder() const;
  void set_libraries(const std::vector<std::string>& files);
  [[nodiscard]] std::vector<std::string> libraries() const;
  // Why the loader, or the process of ranks that are threads, ends. Safe in signal handlers.
  void set_failure(std::string_view sentence);
  [[nodiscard]] std::string failure() const;

  // The exit code of a run without ranks.
  void end(int exit_code);
  [[nodiscard]] int exit_code() const;

 private:
  template <size_t Capacity>
  class Text;
  struct Page;
  [[nodiscard]] std::string_view current_text() const;
  [[nodiscard]] Page& page() const { return *static_cast<Page*>(memory_); }

  void* memory_ = nullptr;
};

}  // namespace ddhost
