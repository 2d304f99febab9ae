// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/chunk_reader.hpp"

#include <algorithm>
#include <new>
#include <optional>

#include "checkpoint/usable_values.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

ChunkReader::ChunkReader(const std::filesystem::path& folder, const Manifest& manifest, Values values)
    : folder_(folder),
      manifest_(manifest),
      values_(values),
      buffer_(
          static_cast<char*>(std::aligned_alloc(DirectFile::kBlockBytes, kPartBytes + 2 * DirectFile::kBlockBytes))) {
  if (buffer_ == nullptr) throw std::bad_alloc();
  for (const Manifest::File& file : manifest.files) files_.emplace_back(folder / file.name, RangeFile::Mode::read);
}

void ChunkReader::read(const Manifest::Tensor& tensor, uint64_t begin, uint64_t bytes, char* to) {
  for_each_part(tensor, begin, bytes,
                [&](uint64_t at, const char* data, uint64_t n) { std::copy_n(data, n, to + (at - begin)); });
}

// What is in the buffer from byte `at` of a tensor on, after reading more of [at, end) if it is not there.
ChunkReader::Loaded ChunkReader::loaded_at(const Manifest::Tensor& tensor, uint64_t at, uint64_t end) {
  const uint64_t chunk = at / kChunkBytes;
  if (tensor_ != &tensor || at < begin_ || at >= end_)
    load(tensor, chunk, std::min((end - 1) / kChunkBytes + 1, chunk + kPartChunks));
  return {bytes_ + (at - begin_), end_ - at};
}

void ChunkReader::check_chunk(const Manifest::Tensor& tensor, uint64_t chunk, const char* data) const {
  const StoredTensor& t = tensor.stored;
  const std::string path = (folder_ / manifest_.files[t.file].name).string();
  const uint64_t begin = chunk * kChunkBytes, bytes = t.chunk_bytes(chunk);
  if (sum_of(data, bytes) != tensor.sums[chunk])
    ddh::fail(DDH_DATA_LOSS, "tensor '", t.name, "' in '", path, "' is damaged in its bytes ", begin, " to ",
              begin + bytes);
  if (values_ == Values::any) return;
  if (const std::optional<uint64_t> at = first_unusable(t, data, bytes))
    ddh::fail(DDH_DATA_LOSS, unusable_text(t, begin / ddh_dtype_bytes(t.dtype) + *at), " in '", path,
              "', so no run can go on from it");
}

// Chunks [first, end).
void ChunkReader::load(const Manifest::Tensor& tensor, uint64_t first, uint64_t end) {
  const StoredTensor& t = tensor.stored;
  const uint64_t begin = first * kChunkBytes, bytes = (end - 1 - first) * kChunkBytes + t.chunk_bytes(end - 1);
  tensor_ = nullptr;
  const DirectFile::Read read = files_[t.file].read_into(buffer_.get(), t.offset + begin, bytes);
  bytes_read_ += read.bytes_read;
  for (uint64_t chunk = first; chunk < end; ++chunk)
    check_chunk(tensor, chunk, read.data + (chunk - first) * kChunkBytes);
  tensor_ = &tensor;
  begin_ = begin;
  end_ = begin + bytes;
  bytes_ = read.data;
}

}  // namespace ddhost
