// SPDX-License-Identifier: Apache-2.0
//
// formats/torch/torch_archive.hpp: an archive of torch.save: a zip with a pickle and the storages of its tensors.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "foreign_checkpoint.hpp"
#include "pickle_tree.hpp"

namespace torch_format {

class TorchArchive {
 public:
  // `bytes` outlives the object and its tensors. Throws ddh::Error naming `what`.
  TorchArchive(std::string_view bytes, std::string what);
  [[nodiscard]] const PickleValue& root() const { return pickle_->root(); }
  // A value of kind tensor. One that does not lie row-major in its storage is copied into `values`.
  [[nodiscard]] ddh::FileTensor tensor(const PickleValue& value, std::deque<std::vector<char>>& values) const;
  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  std::string what_, folder_;  // in which the archive keeps its entries
  std::map<std::string, std::string_view> entries_;
  std::optional<PickleTree> pickle_;
};

// Names under which trainers keep a state dict beside other things.
inline constexpr std::array<std::string_view, 4> kStateDicts = {"model", "state_dict", "model_state_dict", "module"};

// Calls `read`; errors of values that are of an unexpected kind become a sentence about `what`.
void read_foreign_values(const std::string& what, const std::function<void()>& read);

}  // namespace torch_format
