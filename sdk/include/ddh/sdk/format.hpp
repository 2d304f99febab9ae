// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/format.hpp: the C++ base class of a format. Each virtual function is the slot of that name in
// ddh/kind/format.h, which documents it. Failures are thrown. docs/writing-a-format.md shows one.
#pragma once

#include <string>
#include <vector>

#include "ddh/sdk/files/file_tensor.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// What `open` finds. Texts and shapes may be temporary; the base class keeps them.
struct FormatContents {
  struct Tensor {
    std::string name;            // of the weight
    std::string slot;            // of the optimizer, "exp_avg"; "" of a weight
    int32_t dtype = DDH_F32;     // DDH_*
    std::vector<int64_t> shape;  // of the whole tensor
  };
  std::string what;            // "a checkpoint of llm.c"
  std::string meaning_of_ids;  // as in ddh_model_desc; "": not known
  int64_t step = -1;           // updates that the optimizer has made; -1: it has no state here
  std::string other_step;      // a parameter that has had another number of updates; "": none
  std::vector<Tensor> tensors;
};

class Format : public Instance {
 public:
  using Instance::Instance;
  // Judges by names and first bytes. An exception counts as false.
  virtual bool matches(const std::string& path) = 0;
  virtual FormatContents open(const std::string& path) = 0;
  // Writes bytes [offset, offset + bytes) of tensor `index` of the contents to dst.
  virtual void read(uint32_t index, uint64_t offset, uint64_t bytes, void* dst) = 0;

  [[nodiscard]] const void* interface(std::string_view id) const final;

 private:
  void open_and_keep(const char* path, ddh_format_info& out);
  void describe(uint32_t index, ddh_file_tensor& out) const;

  FormatContents contents_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
