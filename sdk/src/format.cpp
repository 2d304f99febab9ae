// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/format.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

namespace {
const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }
}  // namespace

void Format::open_and_keep(const char* path, ddh_format_info& out) {
  contents_ = open(path);
  copy_out({sizeof out, static_cast<uint32_t>(contents_.tensors.size()), contents_.what.c_str(),
            or_null(contents_.meaning_of_ids), contents_.step, or_null(contents_.other_step)},
           out);
}

void Format::describe(uint32_t index, ddh_file_tensor& out) const {
  if (index >= contents_.tensors.size())
    fail(DDH_OUT_OF_RANGE, "tensor ", index, " of ", contents_.tensors.size(), " is asked for");
  const FormatContents::Tensor& tensor = contents_.tensors[index];
  uint64_t bytes = ddh_dtype_bytes(tensor.dtype);
  for (const int64_t n : tensor.shape)
    if (n < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(n), &bytes))
      fail(DDH_DATA_LOSS, "tensor '", tensor.name, "' has the impossible shape ", shape_text(tensor.shape));
  copy_out({sizeof out, tensor.slot.empty() ? DDH_TENSOR_WEIGHT : DDH_TENSOR_SLOT, tensor.name.c_str(),
            or_null(tensor.slot), tensor.shape.data(), static_cast<uint32_t>(tensor.shape.size()), tensor.dtype, bytes},
           out);
}

const void* Format::interface(std::string_view id) const {
  static const ddh_format_api table = {
      sizeof(ddh_format_api),
      0,
      [](ddh_inst* i, const char* path) noexcept -> int32_t {
        try {
          return self_as<Format>(i).matches(path) ? 1 : 0;
        } catch (...) {
          return 0;
        }
      },
      [](ddh_inst* i, const char* path, ddh_format_info* out, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Format>(i).open_and_keep(path, *out); });
      },
      [](ddh_inst* i, uint32_t index, ddh_file_tensor* out, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Format>(i).describe(index, *out); });
      },
      [](ddh_inst* i, uint32_t index, uint64_t offset, uint64_t bytes, void* dst, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Format>(i).read(index, offset, bytes, dst); });
      },
  };
  return id == DDH_FORMAT_IFACE ? &table : nullptr;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
