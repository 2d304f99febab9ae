// SPDX-License-Identifier: Apache-2.0
//
// engine/state/final_weights.hpp: the file of train.save_final: the model's parameters and buffers as one safetensors
// file, written by all ranks at once. It is claimed and opened before the run, and named after it, so that another run,
// a full disk or a removed folder in between can't cost the weights.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/durable.hpp"
#include "engine/services/comm/comm.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "engine/state/state_entries.hpp"

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
  // `is_shared`: ranks of other hosts write too, through hidden().
  FinalWeights(const std::filesystem::path& target, const std::filesystem::path& run_dir, bool is_shared = false);
  // On another host. `hidden`: of the object that rank 0 has.
  FinalWeights(const std::filesystem::path& target, const std::filesystem::path& run_dir,
               const std::vector<std::filesystem::path>& hidden);

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
  const std::unique_ptr<const NameClaim> claim_;  // null on other hosts
  const NewFile file_, spare_;
};

// Reserves the space of the file before the training, so that a full disk is an error at once. [collective]
void reserve_final_weights(const FinalWeights& file, const ddh_model_desc& model, const Comm& comm);

struct FinalSave {
  std::string path;     // where the weights are; known on rank 0
  std::string problem;  // why they are not in train.save_final; empty: they are. The same on every rank
};

// Writes and names the file. Every rank writes the entries that it owns (replica 0), and rank 0 writes its buffers.
// Parameters are stored in ddh_param_desc.dtype. If the disk fails, the run's folder gets the weights. If a rank fails in
// another way, every rank throws ddh::Error. Values that are not finite are such a failure; `nonfinite_reason` explains
// their cause. [collective]
[[nodiscard]] FinalSave save_final_weights(const FinalWeights& file, const StateSource& source,
                                           const RankServices& services, const std::string& nonfinite_reason);

}  // namespace ddhost
