// SPDX-License-Identifier: Apache-2.0
//
// engine/checks/check_model.hpp: a model's description, checked before it is used, and copied into this host's structs. The
// model may have been built with an older or a newer SDK; the host, the strategy and the optimizer all read the copy. The
// model still owns names, shapes and lists.
#pragma once

#include <vector>

#include "ddh/ddh.h"
#include "ddh/kind/model.h"

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

}  // namespace ddhost
