// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/safetensors.hpp: the safetensors format: u64 header bytes (little-endian), that much JSON, then raw
// row-major tensors at data_offsets counted from the header's end. ddh_model_desc.meaning_of_ids is in its metadata.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ddh/ddh.h"
#include "ddh/sdk/files/file_tensor.hpp"

namespace ddhost {

// "F32" for DDH_F32. Throws if the format has no such dtype.
const char* safetensors_name(int32_t dtype);
// 0 for a name that is unknown here.
int32_t safetensors_dtype(const std::string& name);

// The tensors of a file's content, which they point into. The rules are those of the reference implementation of the
// format: the tensors fill the data section exactly, in some order, without holes and overlaps. Duplicate names are
// refused too. Throws ddh::Error that begins with `what`.
// `metadata`: gets the pairs of __metadata__, if it is given.
std::map<std::string, ddh::FileTensor> parse_safetensors(std::string_view bytes, const std::string& what,
                                                         std::map<std::string, std::string>* metadata = nullptr);

// A file mapped for reading.
class SafetensorsFile {
 public:
  using Tensor = ddh::FileTensor;
  // Throws ddh::Error naming the file and what is wrong with it.
  explicit SafetensorsFile(const std::string& path);

  [[nodiscard]] const Tensor* find(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  // What the ids of the model that it is of stand for; "": not known.
  [[nodiscard]] const std::string& meaning_of_ids() const { return meaning_of_ids_; }

 private:
  std::shared_ptr<const void> mapping_;  // of the file
  std::map<std::string, Tensor> tensors_;
  std::string meaning_of_ids_;
};

// The layout of a file to write. Every rank computes the same.
struct SafetensorsLayout {
  std::string header;                  // preceded by its length
  std::vector<uint64_t> file_offsets;  // per tensor
  uint64_t file_bytes = 0;

  struct Item {
    std::string name;
    int32_t dtype;
    std::vector<int64_t> shape;
  };
  SafetensorsLayout(const std::vector<Item>& items, const std::map<std::string, std::string>& metadata);
};

// ddh_model_desc.meaning_of_ids, which the metadata of safetensors files holds. "": not known.
std::string meaning_of_ids(const ddh_model_desc& model);

// The `__metadata__` of a file of weights. `meaning`: "" is left out.
std::map<std::string, std::string> weights_metadata(const std::string& meaning);

// A sentence where both are known and differ, else "".
std::string warning_of_other_ids(const std::string& file, const std::string& stored, const ddh_model_desc& model);

}  // namespace ddhost
