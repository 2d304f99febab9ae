// SPDX-License-Identifier: Apache-2.0
//
// A file that always has the newest of the texts that it was given, written by a thread of its own: a slow disk slows no step,
// and texts that a newer one overtakes are never written. Readers see an old or a new text, never half of one.
#pragma once

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "ddh/sdk/plugin.hpp"

class LatestText {
 public:
  // The folder exists. A hidden file beside `path` is written first, and then renamed.
  explicit LatestText(std::string path) : path_(std::move(path)), hidden_(hidden_beside(path_)) {
    write("");  // an error before the first step
    thread_ = std::thread([this] { work(); });
  }
  LatestText(const LatestText&) = delete;
  LatestText& operator=(const LatestText&) = delete;
  // The last text is in the file, or can't be written.
  ~LatestText() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  // Throws if an earlier text could not be written.
  void set(std::string text) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.empty()) ddh::fail(DDH_RESOURCE_EXHAUSTED, failure_);
      next_ = std::move(text);
    }
    changed_.notify_one();
  }

 private:
  static std::string hidden_beside(const std::string& path) {
    const size_t slash = path.rfind('/') + 1;
    return path.substr(0, slash) + "." + path.substr(slash) + ".new";
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return next_ || ends_; });
      if (!next_) return;
      const std::string text = *std::exchange(next_, std::nullopt);
      lock.unlock();
      std::string failure;
      try {
        write(text);
      } catch (const ddh::Error& error) {
        failure = error.what();
      }
      lock.lock();
      if (!failure.empty()) failure_ = failure;
    }
  }

  void write(const std::string& text) const {
    std::ofstream out(hidden_, std::ios::trunc);
    out << text;
    out.close();
    if (!out || std::rename(hidden_.c_str(), path_.c_str()) != 0) {
      const int error = errno;
      std::remove(hidden_.c_str());
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "cannot write '", path_, "': ", std::strerror(error),
                "; free some space or give another folder");
    }
  }

  const std::string path_, hidden_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> next_;  // not written yet
  std::string failure_;
  bool ends_ = false;
  std::thread thread_;
};
