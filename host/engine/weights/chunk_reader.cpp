// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/chunk_reader.hpp"

#include <algorithm>
#include <new>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

ChunkReader::ChunkReader(const std::filesystem::path& folder, const Manifest& manifest)
    : folder_(folder),
      manifest_(manifest),
      buffer_(static_cast<char*>(
          std::aligned_alloc(DirectFile::kBlockBytes, kWindowChunks * kChunkBytes + 2 * DirectFile::kBlockBytes))) {
  if (buffer_ == nullptr) throw std::bad_alloc();
  for (const Manifest::File& file : manifest.files) files_.emplace_back(folder / file.name, RangeFile::Mode::read);
}

void ChunkReader::read(const Manifest::Tensor& tensor, uint64_t begin, uint64_t bytes, char* to) {
  for_each_part(tensor, begin, bytes,
                [&](uint64_t at, const char* data, uint64_t n) { std::copy_n(data, n, to + (at - begin)); });
}

// `last_needed`: chunks up to this one will be asked for next.
const char* ChunkReader::chunk_of(const Manifest::Tensor& tensor, uint64_t chunk, uint64_t last_needed) {
  if (loaded_ != &tensor || chunk < first_chunk_ || chunk >= end_chunk_)
    load(tensor, chunk, std::min(last_needed + 1, chunk + kWindowChunks));
  return chunks_ + (chunk - first_chunk_) * kChunkBytes;
}

void ChunkReader::load(const Manifest::Tensor& tensor, uint64_t first, uint64_t end) {
  const StoredTensor& t = tensor.stored;
  const uint64_t begin = first * kChunkBytes, bytes = (end - 1 - first) * kChunkBytes + t.chunk_bytes(end - 1);
  loaded_ = nullptr;
  const DirectFile::Read read = files_[t.file].read_into(buffer_.get(), t.offset + begin, bytes);
  bytes_read_ += read.bytes_read;
  for (uint64_t chunk = first; chunk < end; ++chunk) {
    if (sum_of(read.data + (chunk - first) * kChunkBytes, t.chunk_bytes(chunk)) == tensor.sums[chunk]) continue;
    ddh::fail(DDH_DATA_LOSS, "tensor '", t.name, "' in '", (folder_ / manifest_.files[t.file].name).string(),
              "' is damaged in its bytes ", chunk * kChunkBytes, " to ", chunk * kChunkBytes + t.chunk_bytes(chunk));
  }
  loaded_ = &tensor;
  first_chunk_ = first;
  end_chunk_ = end;
  chunks_ = read.data;
}

}  // namespace ddhost
