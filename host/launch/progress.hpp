// SPDX-License-Identifier: Apache-2.0
//
// launch/progress.hpp: one page per rank that all ranks and the launcher see: how far a rank is, why it failed, and
// whether the run is asked to stop. It survives the rank, so the launcher can name a dead rank's last step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddhost {

class Progress {
 public:
  explicit Progress(int world_size);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // The step that the rank is working on; counts from 1, 0 = before the first.
  void set_step(int rank, int64_t step);
  [[nodiscard]] int64_t step(int rank) const;

  // A rank's reason to end; the first call counts. `caused_by_peer`: it only noticed that another one had ended.
  void set_failure(int rank, const std::string& sentence, bool caused_by_peer);
  struct Failure {
    std::string sentence;
    bool caused_by_peer = false;
    uint32_t order = 0;  // 1 = the first of the world; 0 = no failure
  };
  [[nodiscard]] Failure failure(int rank) const;

  // Asks all ranks to finish the current step and end. A rank reads it once per step and agrees with the others.
  void request_stop();
  [[nodiscard]] bool stop_requested() const;

 private:
  struct World;
  struct Rank;
  [[nodiscard]] Rank& at(int rank) const;
  [[nodiscard]] World& world() const;

  void* pages_ = nullptr;
  size_t bytes_ = 0;
  int world_size_ = 0;
};

}  // namespace ddhost
