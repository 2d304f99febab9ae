// SPDX-License-Identifier: Apache-2.0
#include "torch_archive.hpp"

#include <array>
#include <cstring>
#include <stdexcept>

#include "ddh/sdk/plugin.hpp"
#include "zip_entries.hpp"

namespace torch_format {
namespace {

struct Scalar {
  const char* name;
  int32_t dtype;
};
constexpr std::array<Scalar, 8> kStorages = {{{"FloatStorage", DDH_F32},
                                              {"HalfStorage", DDH_F16},
                                              {"BFloat16Storage", DDH_BF16},
                                              {"DoubleStorage", DDH_F64},
                                              {"LongStorage", DDH_I64},
                                              {"IntStorage", DDH_I32},
                                              {"ByteStorage", DDH_U8},
                                              {"BoolStorage", DDH_U8}}};

// 0: one that is unknown here (int8, int16).
int32_t dtype_of(const std::string& storage) {
  const std::string name = storage.substr(storage.rfind('.') + 1);
  for (const Scalar& scalar : kStorages)
    if (name == scalar.name) return scalar.dtype;
  return 0;
}

// The last element of a tensor in its storage, plus one. Throws std::invalid_argument where a number is negative or too large.
uint64_t end_of(uint64_t offset, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  uint64_t end = offset + 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    uint64_t reach = 0;
    if (shape[d] < 0 || strides[d] < 0) throw std::invalid_argument("a tensor has a negative size or stride");
    if (shape[d] == 0) return offset;
    if (__builtin_mul_overflow(static_cast<uint64_t>(shape[d] - 1), static_cast<uint64_t>(strides[d]), &reach) ||
        __builtin_add_overflow(end, reach, &end))
      throw std::invalid_argument("a tensor is larger than its storage");
  }
  return end;
}

bool is_row_major(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  int64_t expected = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != expected) return false;
    if (__builtin_mul_overflow(expected, shape[d], &expected)) return false;
  }
  return true;
}

// Copies the elements in row-major order.
void gather(const char* from, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, size_t dim,
            uint64_t width, char*& to) {
  if (dim == shape.size()) {
    std::memcpy(to, from, width);
    to += width;
    return;
  }
  for (int64_t i = 0; i < shape[dim]; ++i)
    gather(from + static_cast<uint64_t>(i * strides[dim]) * width, shape, strides, dim + 1, width, to);
}

}  // namespace

TorchArchive::TorchArchive(std::string_view bytes, std::string what) : what_(std::move(what)) {
  if (!bytes.starts_with("PK"))
    ddh::fail(DDH_UNIMPLEMENTED, what_,
              " is no archive of torch.save: it is of torch before 1.6, or another file; load ",
              "it with torch and save it again");
  entries_ = zip_entries(bytes, what_);
  for (const auto& [name, content] : entries_) {
    if (name != "data.pkl" && !name.ends_with("/data.pkl")) continue;
    folder_ = name.substr(0, name.size() - std::string_view("data.pkl").size());
    pickle_.emplace(content, what_);
  }
  if (!pickle_)
    ddh::fail(DDH_DATA_LOSS, what_, " has no entry data.pkl: it is no file of torch.save; give another file");
  const auto order = entries_.find(folder_ + "byteorder");
  if (order != entries_.end() && order->second != "little")
    ddh::fail(DDH_UNIMPLEMENTED, what_, " holds big-endian numbers; save it again on a little-endian machine");
}

ddh::FileTensor TorchArchive::tensor(const PickleValue& value, std::deque<std::vector<char>>& values) const {
  if (value.kind != PickleValue::Kind::tensor) throw std::invalid_argument("a value is no tensor");
  const PickleValue& storage = *value.items[0];
  ddh::FileTensor out{dtype_of(storage.name), value.items[2]->as_integers(), nullptr, 0};
  const std::vector<int64_t> strides = value.items[3]->as_integers();
  if (strides.size() != out.shape.size() || value.items[1]->as_integer() < 0)
    throw std::invalid_argument("a tensor has no place in its storage");
  const auto at = entries_.find(folder_ + "data/" + storage.text);
  if (at == entries_.end()) throw std::out_of_range("it has no storage " + storage.text);
  const uint64_t width = out.dtype == 0 ? 1 : ddh_dtype_bytes(out.dtype);
  const auto offset = static_cast<uint64_t>(value.items[1]->as_integer());
  if (end_of(offset, out.shape, strides) > at->second.size() / width)
    throw std::invalid_argument("a tensor is larger than its storage");
  uint64_t numel = 1;
  for (const int64_t n : out.shape)
    if (__builtin_mul_overflow(numel, static_cast<uint64_t>(n), &numel))
      throw std::invalid_argument("a tensor is too large");
  const char* const from = at->second.data() + offset * width;
  out.bytes = numel * width;
  out.data = from;
  if (!is_row_major(out.shape, strides)) {
    // Strides of zero could ask for more than the file holds.
    if (numel > at->second.size() / width) throw std::invalid_argument("a tensor is larger than its storage");
    std::vector<char>& copy = values.emplace_back(out.bytes);
    char* to = copy.data();
    gather(from, out.shape, strides, 0, width, to);
    out.data = copy.data();
  }
  return out;
}

void read_foreign_values(const std::string& what, const std::function<void()>& read) {
  try {
    read();
  } catch (const std::logic_error& e) {  // of PickleValue and TorchArchive
    const std::string why = e.what();    // of std::vector::at, where a list is too short
    const bool is_ours = why.find("_M_range_check") == std::string::npos;
    ddh::fail(DDH_DATA_LOSS, what, " is damaged, or of a kind that is not read: ",
              is_ours ? why : "a list in it is shorter than another one", "; save it again");
  }
}

}  // namespace torch_format
