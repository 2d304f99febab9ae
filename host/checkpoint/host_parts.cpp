// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/host_parts.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/codec_file.hpp"
#include "checkpoint/memory_folder.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr std::string_view kPartPrefix = "part-";
constexpr uint64_t kPartMark = 0x3274726170686464;  // "ddhpart2"
constexpr size_t kPartEdges = sizeof kPartMark + sizeof(Part::Head) + sizeof(uint64_t);

}  // namespace

fs::path parts_root(const fs::path& run_dir) { return memory_folder(run_dir) / "hosts"; }
fs::path memory_root(const fs::path& run_dir, bool by_host) {
  return by_host ? parts_root(run_dir) : memory_folder(run_dir);
}

uint64_t Part::bytes() const {
  return std::accumulate(ranges.begin(), ranges.end(), uint64_t{0},
                         [](uint64_t sum, const PartRange& range) { return sum + range.bytes; });
}

std::string part_text(const Part& part) {
  std::string out;
  const auto add = [&](const void* data, size_t bytes) { out.append(static_cast<const char*>(data), bytes); };
  add(&kPartMark, sizeof kPartMark);
  add(&part.head, sizeof part.head);
  add(part.ranges.data(), part.ranges.size() * sizeof(PartRange));
  const uint64_t sum = sum_of(out.data(), out.size());
  add(&sum, sizeof sum);
  return out;
}

std::optional<Part> parse_part(const std::string& text) {
  if (text.size() < kPartEdges || (text.size() - kPartEdges) % sizeof(PartRange) != 0) return std::nullopt;
  uint64_t mark = 0, sum = 0;
  const char* const end = text.data() + text.size() - sizeof sum;
  std::memcpy(&mark, text.data(), sizeof mark);
  std::memcpy(&sum, end, sizeof sum);
  if (mark != kPartMark || sum != sum_of(text.data(), text.size() - sizeof sum)) return std::nullopt;
  Part part{};
  std::memcpy(&part.head, text.data() + sizeof mark, sizeof part.head);
  part.ranges.resize((text.size() - kPartEdges) / sizeof(PartRange));
  if (!part.ranges.empty())
    std::memcpy(part.ranges.data(), text.data() + sizeof mark + sizeof part.head,
                part.ranges.size() * sizeof(PartRange));
  const bool fits = std::all_of(part.ranges.begin(), part.ranges.end(),
                                [](const PartRange& range) { return range.bytes <= kChunkBytes; });
  return fits ? std::optional(std::move(part)) : std::nullopt;
}

void write_part(const fs::path& folder, const Part& part) {
  replace_durably(folder / ddh::str(kPartPrefix, part.head.rank), part_text(part));
}

std::map<int32_t, std::optional<Part>> list_parts(const fs::path& folder) {
  std::map<int32_t, std::optional<Part>> out;
  std::error_code ec;
  for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(kPartPrefix)) continue;
    int32_t rank = 0;
    const char* const last = name.data() + name.size();
    const auto [stopped, error] = std::from_chars(name.data() + kPartPrefix.size(), last, rank);
    if (error != std::errc{} || stopped != last || rank < 0) continue;
    std::optional<Part> part = parse_part(read_whole(at->path()));
    if (part && part->head.rank != rank) part.reset();
    out.emplace(rank, std::move(part));
  }
  return out;
}

PartFiles::PartFiles(fs::path folder, const Manifest& manifest)
    : folder_(std::move(folder)), of_manifest_(manifest.files) {}

uint32_t PartFiles::codec_file(int32_t rank) const {
  return static_cast<uint32_t>(static_cast<int64_t>(of_manifest_.size()) + 1 + rank);
}

std::string PartFiles::name_of(uint32_t file) const {
  if (file < of_manifest_.size()) return of_manifest_[file].name;
  const auto rank = static_cast<int64_t>(file) - static_cast<int64_t>(of_manifest_.size()) - 1;
  return rank < 0 ? kSharedCodecFile : codec_file_of_rank(static_cast<int>(rank));
}

const RangeFile& PartFiles::of(uint32_t file, bool makes) {
  const auto known = open_.find(file);
  if (known != open_.end()) return known->second;
  const fs::path path = folder_ / name_of(file);
  std::error_code ec;
  const bool is_new = makes && file >= of_manifest_.size() && !fs::exists(path, ec);
  return open_.emplace(file, RangeFile(path, is_new ? RangeFile::Mode::create : RangeFile::Mode::write)).first->second;
}

void PartFiles::make() {
  for (const Manifest::File& file : of_manifest_) {
    std::error_code ec;
    if (fs::exists(folder_ / file.name, ec)) continue;
    RangeFile(folder_ / file.name, RangeFile::Mode::create).resize(file.bytes);
  }
}

bool PartFiles::hold(const Part& part) {
  std::vector<char> bytes(kChunkBytes);
  for (const PartRange& range : part.ranges) {
    const RangeFile& file = of(range.file);
    const uint64_t size = file.bytes();
    if (range.offset > size || range.bytes > size - range.offset) return false;
    file.read_at(range.offset, bytes.data(), range.bytes);
    if (sum_of(bytes.data(), range.bytes) != range.sum) return false;
  }
  return true;
}

std::vector<PartRange> PartFiles::ranges_of(uint32_t file) {
  std::vector<PartRange> out;
  std::vector<char> bytes(kChunkBytes);
  const uint64_t size = of(file).bytes();
  for (uint64_t at = 0; at < size; at += kChunkBytes) {
    PartRange range{file, 0, at, std::min(kChunkBytes, size - at), 0};
    read(range, bytes.data());
    range.sum = sum_of(bytes.data(), range.bytes);
    out.push_back(range);
  }
  return out;
}

void keep_parts_of_step(const fs::path& root, int64_t step) {
  remove_leftovers(root);
  for (const CheckpointPlace& place : list_checkpoints(root))
    if (place.step != step) remove_folder(place.folder);
  remove_damaged(root);
}

}  // namespace ddhost
