// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/model_copy.hpp: a model's description as this host's structs. The model may have been built with an
// older or a newer SDK; the host, the strategy and the optimizer all read this copy. The model still owns names, shapes
// and lists.
#pragma once

#include <vector>

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
  std::vector<ddh_model_desc> desc_;  // one element, on the heap so that its address is stable
};

}  // namespace ddhost
