// SPDX-License-Identifier: Apache-2.0
//
// engine/checks/check_model.hpp: a model's description, checked before it is used, and copied into this host's structs.
// The model may have been built with an older or a newer SDK; the host, the strategy and the optimizer all read the
// copy. The model still owns names, shapes and lists. Of its programs these are checked: flags of positions, trained
// parameters, update programs, the optimizers that they name, and the features that the model's plugin must declare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "ddh/kind/model.h"
#include "engine/services/comm/comm.hpp"
#include "engine/settings/run_plan.hpp"

namespace ddhost {

class ModelCopy {
 public:
  ModelCopy() = default;
  // Error: a struct is too short, sets something unknown or reserved, or is missing. The message names the struct and
  // its index.
  explicit ModelCopy(const ddh_model_desc* given);

  // Valid while this object lives, also after a move.
  [[nodiscard]] const ddh_model_desc* get() const { return &desc_.front(); }

 private:
  template <class T>
  struct List {
    std::vector<T> copies;
    std::vector<const T*> pointers;
    List() = default;
    List(const T* const* given, uint32_t n, const char* what);
  };
  List<ddh_param_desc> params_;
  List<ddh_unit_desc> units_;
  List<ddh_buffer_desc> buffers_;
  List<ddh_program_desc> programs_;
  List<ddh_layout_desc> layouts_;
  std::vector<ddh_model_desc> desc_;  // one element, on the heap so that its address is stable
};

// Checks every pointer, size and index. Throws ddh::Error naming the entry. Afterwards the whole description is safe to read.
void check_description(const ddh_model_desc* model);

// Throws ddh::Error naming the unit, parameter or program that breaks a rule of ddh/kind/model.h. `uses`: ddh_desc.uses of
// its plugin.
void check_model(const ddh_model_desc& model, uint64_t uses);

// Throws on every rank if one differs from rank 0, and names that rank and the difference. [collective]
void check_same_everywhere(const std::vector<Fingerprint>& fingerprints, const Comm& comm);

// The numbers of samples of the model's programs and the meaning of its ids, to compare them in the same way.
std::vector<Fingerprint> data_fingerprints(const ddh_model_desc& model);

// `uses`: ddh_desc.uses of the model's plugin. Throws if the description uses an undeclared feature.
void check_features(const ddh_model_desc& model, uint64_t uses);

// `sections`: train.optimizers. Throws if a program's optimizer index is beyond them. Returns sections that no program
// uses.
std::vector<std::string> unused_optimizers(const ddh_model_desc& model, const std::vector<int32_t>& train_programs,
                                           const std::vector<std::string>& sections);

}  // namespace ddhost
