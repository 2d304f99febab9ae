// SPDX-License-Identifier: Apache-2.0
//
// engine/state/final_weights.hpp: the file of train.save_final. It is claimed and opened before the run, and named after
// it, so that another run, a full disk or a removed folder in between can't cost the weights.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/durable.hpp"

namespace ddhost {

// A name that one process of this machine holds. The kernel releases it when the process and its children have ended.
class NameClaim {
 public:
  // Throws if another process holds the name.
  explicit NameClaim(const std::filesystem::path& file);
  NameClaim(const NameClaim&) = delete;
  NameClaim& operator=(const NameClaim&) = delete;
  ~NameClaim();

 private:
  int fd_ = -1;
};

class FinalWeights {
 public:
  // Both folders exist. Call it before ranks are forked: they write through its descriptors.
  FinalWeights(const std::filesystem::path& target, const std::filesystem::path& run_dir);

  // Where the weights are written: the file beside the target, or one in the run's folder if that one fails.
  enum class Place { target, run_dir };
  [[nodiscard]] const RangeFile& data(Place place) const;

  // Names that the files have meanwhile, which a run that ends in another way than its destructor leaves behind.
  [[nodiscard]] std::vector<std::filesystem::path> hidden() const;

  struct Named {
    std::filesystem::path path;
    std::string problem;  // why it is not the target; empty: it is
  };
  // Names the complete file. It never takes the place of another file: it gets another name or goes to the run's folder.
  // Throws if both folders refuse it.
  [[nodiscard]] Named publish(Place written) const;
  [[nodiscard]] const std::filesystem::path& target() const { return target_; }

 private:
  [[nodiscard]] std::filesystem::path publish_in_run_dir() const;
  const std::filesystem::path target_, in_run_dir_;
  const NameClaim claim_;
  const NewFile file_, spare_;
};

}  // namespace ddhost
