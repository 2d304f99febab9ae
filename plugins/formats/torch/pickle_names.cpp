// SPDX-License-Identifier: Apache-2.0
//
// pickle_names.cpp: the names that checkpoints of torch and DeepSpeed hold, and what each means. No name
// is ever called or imported: those of kind object stand for data alone.
#include <algorithm>
#include <array>

#include "pickle_tree.hpp"

namespace torch_format {
namespace {

struct Known {
  std::string_view name;
  PickleName meaning;
};

constexpr Known kKnown[] = {
    {"collections.OrderedDict", PickleName::dict},
    {"collections.defaultdict", PickleName::dict},
    {"builtins.dict", PickleName::dict},
    {"__builtin__.dict", PickleName::dict},
    {"builtins.set", PickleName::list},
    {"__builtin__.set", PickleName::list},
    {"builtins.list", PickleName::list},
    {"torch.Size", PickleName::tuple},
    {"_codecs.encode", PickleName::text},
    {"torch._utils._rebuild_tensor", PickleName::tensor},
    {"torch._utils._rebuild_tensor_v2", PickleName::tensor},
    {"torch._utils._rebuild_parameter", PickleName::parameter},
    // Members of enumerations and tensors with attributes: see PickleMachine.
    {"builtins.getattr", PickleName::member},
    {"__builtin__.getattr", PickleName::member},
    {"torch._tensor._rebuild_from_type_v2", PickleName::typed_tensor},
    // Data of torch.
    {"torch.Tensor", PickleName::object},
    {"torch.device", PickleName::object},
    {"torch.serialization._get_layout", PickleName::object},
    // Folders of torch.distributed.checkpoint.
    {"torch.distributed.checkpoint.metadata.Metadata", PickleName::object},
    {"torch.distributed.checkpoint.metadata.MetadataIndex", PickleName::object},
    {"torch.distributed.checkpoint.metadata.TensorStorageMetadata", PickleName::object},
    {"torch.distributed.checkpoint.metadata.BytesStorageMetadata", PickleName::object},
    {"torch.distributed.checkpoint.metadata.ChunkStorageMetadata", PickleName::object},
    {"torch.distributed.checkpoint.metadata.TensorProperties", PickleName::object},
    {"torch.distributed.checkpoint.metadata.StorageMeta", PickleName::object},
    {"torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING", PickleName::enumeration},
    {"torch.distributed.checkpoint.filesystem._StorageInfo", PickleName::object},
    {"torch.distributed.checkpoint._fsspec_filesystem._StorageInfo", PickleName::object},
    {"pathlib.PosixPath", PickleName::object},
    {"pathlib._local.PosixPath", PickleName::object},
    // Checkpoints of DeepSpeed.
    {"deepspeed.runtime.fp16.loss_scaler.LossScaler", PickleName::object},
    {"deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler", PickleName::object},
    {"deepspeed.runtime.zero.config.ZeroStageEnum", PickleName::enumeration},
    {"deepspeed.utils.tensor_fragment.fragment_address", PickleName::object},
};

constexpr std::array<std::string_view, 11> kScalars = {"Float", "Half", "BFloat16", "Double", "Long",   "Int",
                                                       "Short", "Char", "Byte",     "Bool",   "Untyped"};
// torch.float32 and the like are values, not calls.
constexpr std::array<std::string_view, 11> kDtypes = {"float32", "float16", "bfloat16", "float64", "int64",  "int32",
                                                      "int16",   "int8",    "uint8",    "bool",    "strided"};

bool is_storage(std::string_view name) {
  for (const std::string_view scalar : kScalars)
    for (const std::string_view package : {"torch.", "torch.cuda.", "torch.storage."})
      if (name.starts_with(package) && name.substr(package.size()).starts_with(scalar) &&
          name.substr(package.size() + scalar.size()) == "Storage")
        return true;
  return name == "torch.storage.TypedStorage";
}

bool is_dtype(std::string_view name) {
  constexpr std::string_view kPackage = "torch.";
  return name.starts_with(kPackage) &&
         std::find(kDtypes.begin(), kDtypes.end(), name.substr(kPackage.size())) != kDtypes.end();
}

}  // namespace

PickleName pickle_name(std::string_view name) {
  const auto* const at =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) { return k.name == name; });
  if (at != std::end(kKnown)) return at->meaning;
  return is_storage(name) || is_dtype(name) ? PickleName::object : PickleName::refused;
}

}  // namespace torch_format
