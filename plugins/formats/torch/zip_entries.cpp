// SPDX-License-Identifier: Apache-2.0
#include "zip_entries.hpp"

#include <algorithm>

#include "bytes.hpp"

namespace torch_format {
namespace {

// Signatures and sizes of PKWARE's APPNOTE.
constexpr uint32_t kEnd64Locator = 0x07064b50, kEnd64 = 0x06064b50, kCentral = 0x02014b50, kLocal = 0x04034b50;
constexpr uint64_t kEndBytes = 22, kLocatorBytes = 20, kLocalNameAt = 26, kLocalBytes = 30;
constexpr uint64_t kMostComment = 65535;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // the number is in the extra field
constexpr uint16_t kExtra64 = 1;

struct Directory {
  uint64_t entries, offset;
};

Directory find_directory(std::string_view bytes, const std::string& what) {
  const std::string_view mark("PK\5\6", 4);
  const uint64_t first = bytes.size() > kEndBytes + kMostComment ? bytes.size() - kEndBytes - kMostComment : 0;
  const size_t end = bytes.size() < kEndBytes ? std::string_view::npos : bytes.rfind(mark, bytes.size() - kEndBytes);
  if (end == std::string_view::npos || end < first)
    ddh::fail(DDH_DATA_LOSS, what, " is no zip archive, or is cut short; get the file again");
  ByteReader in(bytes, what);
  in.go_to(end + 10);
  const auto entries = in.number<uint16_t>();
  in.take(4);
  const auto offset = in.number<uint32_t>();
  if (end < kLocatorBytes) return {entries, offset};
  in.go_to(end - kLocatorBytes);
  if (in.number<uint32_t>() != kEnd64Locator) return {entries, offset};
  in.take(4);
  in.go_to(in.number<uint64_t>());
  if (in.number<uint32_t>() != kEnd64) in.cut_short();
  in.take(28);
  const auto entries_64 = in.number<uint64_t>();
  in.take(8);
  return {entries_64, in.number<uint64_t>()};
}

struct Entry {
  std::string name;
  uint64_t bytes, offset;  // of its content, and of its local header
};

// Replaces the numbers that do not fit in 32 bits.
void read_extra(ByteReader extra, uint64_t& stored, Entry& entry) {
  while (extra.left() >= 4) {
    const auto id = extra.number<uint16_t>();
    ByteReader field(extra.take(extra.number<uint16_t>()), extra.what());
    if (id != kExtra64) continue;
    if (entry.bytes == kIn64) entry.bytes = field.number<uint64_t>();
    if (stored == kIn64) stored = field.number<uint64_t>();
    if (entry.offset == kIn64) entry.offset = field.number<uint64_t>();
  }
}

Entry read_entry(ByteReader& in) {
  if (in.number<uint32_t>() != kCentral) in.cut_short();
  in.take(4);
  const auto flags = in.number<uint16_t>(), method = in.number<uint16_t>();
  in.take(8);
  uint64_t stored = in.number<uint32_t>();
  Entry entry{"", in.number<uint32_t>(), 0};
  const auto name_bytes = in.number<uint16_t>(), extra_bytes = in.number<uint16_t>(), comment = in.number<uint16_t>();
  in.take(8);
  entry.offset = in.number<uint32_t>();
  entry.name = in.take(name_bytes);
  read_extra({in.take(extra_bytes), in.what()}, stored, entry);
  in.take(comment);
  if (method != 0 || (flags & 1) != 0 || stored != entry.bytes)
    ddh::fail(DDH_UNIMPLEMENTED, "entry '", entry.name, "' of ", in.what(),
              " is compressed or encrypted; torch.save stores it as it is, so save it again");
  return entry;
}

}  // namespace

std::map<std::string, std::string_view> zip_entries(std::string_view bytes, const std::string& what) {
  const Directory directory = find_directory(bytes, what);
  ByteReader in(bytes, what);
  in.go_to(directory.offset);
  std::map<std::string, std::string_view> out;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const Entry entry = read_entry(in);
    ByteReader local(bytes, what);
    local.go_to(entry.offset);
    if (local.number<uint32_t>() != kLocal) local.cut_short();
    local.take(kLocalNameAt - 4);
    const auto name_bytes = local.number<uint16_t>(), extra_bytes = local.number<uint16_t>();
    static_assert(kLocalBytes == kLocalNameAt + 4);
    local.take(uint64_t{name_bytes} + extra_bytes);
    out[entry.name] = local.take(entry.bytes);
  }
  return out;
}

}  // namespace torch_format
