// SPDX-License-Identifier: Apache-2.0
//
// torch: checkpoints of PyTorch and of the programs around it (foreign_checkpoint.hpp lists them). No code in a file is
// run: its pickles are read as data.
#include <cstring>

#include "ddh/sdk/format.hpp"
#include "foreign_checkpoint.hpp"

namespace {

class Torch final : public ddh::Format {
 public:
  using Format::Format;

  bool matches(const std::string& path) override { return torch_format::foreign_kind(path) != nullptr; }

  ddh::FormatContents open(const std::string& path) override {
    checkpoint_ = torch_format::read_foreign(path);
    ddh::FormatContents out;
    out.what = checkpoint_.kind;
    out.step = checkpoint_.step && !checkpoint_.slots.empty() ? *checkpoint_.step : -1;
    out.other_step = checkpoint_.other_step;
    for (const auto& [name, tensor] : checkpoint_.weights) add(out, name, "", tensor);
    for (const auto& [name, tensor] : checkpoint_.slots) {  // "exp_avg/<parameter>"
      const size_t slash = name.find('/');
      add(out, name.substr(slash + 1), name.substr(0, slash), tensor);
    }
    return out;
  }

  void read(uint32_t index, uint64_t offset, uint64_t bytes, void* dst) override {
    std::memcpy(dst, static_cast<const char*>(tensors_.at(index)->data) + offset, bytes);
  }

 private:
  void add(ddh::FormatContents& out, const std::string& name, const std::string& slot, const ddh::FileTensor& tensor) {
    if (tensor.dtype == 0) {
      host.log(DDH_LOG_WARN, "tensor '", name, "' has a dtype that ddhost lacks, and is left out");
      return;
    }
    out.tensors.push_back({name, slot, tensor.dtype, tensor.shape});
    tensors_.push_back(&tensor);
  }

  torch_format::ForeignCheckpoint checkpoint_;
  std::vector<const ddh::FileTensor*> tensors_;  // in the order of the contents
};

}  // namespace

DDH_CXX_PLUGIN(Torch, format, "torch", "0.1.0", "torch.save, transformers, torch.distributed.checkpoint, DeepSpeed",
               nullptr, nullptr, 0);
