// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/host_parts.hpp: checkpoints in memory of a run on several hosts. Each host has a folder of its own, with what its
// ranks have written, and with checkpoint.memory_copies=2 what those of the host before have written:
//
//   <memory_folder.hpp>/hosts/checkpoints/step-100/
//     parts.json      the manifest, without checksums of chunks
//     part-3          what rank 3 wrote: its ranges, each with a checksum
//     *.safetensors   the files of a checkpoint; what no part of this host names is not there
//
// Once all parts are there it becomes a checkpoint: manifest.json, with checksums of chunks, and COMPLETE.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/durable.hpp"
#include "checkpoint/manifest.hpp"

namespace ddhost {

inline constexpr const char* kPartsManifest = "parts.json";

// For the functions of checkpoint_folder.hpp: the folder that takes the place of a run's.
std::filesystem::path parts_root(const std::filesystem::path& run_dir);
// The same of any run's checkpoints in memory.
std::filesystem::path memory_root(const std::filesystem::path& run_dir, bool by_host);

// At most kChunkBytes of a file.
struct PartRange {
  uint32_t file;  // index in Manifest::files; after these the files of a codec: the shared one, then one of each rank
  uint32_t reserved;
  uint64_t offset, bytes;
  uint64_t sum;  // XXH3-64
};

// What a rank has written. A rank's number is that in its own run, which may have had another number of ranks.
struct Part {
  struct Head {
    uint64_t run_id;
    uint64_t first_run;  // the id of the run that this one goes on from, or the same (StepNumbers::first_run)
    int64_t step;
    int32_t world_size, rank;
    uint64_t manifest_sum;  // of the text of parts.json
  };
  Head head;
  std::vector<PartRange> ranges;

  [[nodiscard]] uint64_t bytes() const;
};

// The text of a file part-N. parse_part: nullopt if it is damaged.
std::string part_text(const Part& part);
std::optional<Part> parse_part(const std::string& text);
void write_part(const std::filesystem::path& folder, const Part& part);

// The files part-N of a folder, by rank; nullopt: damaged. Empty if there is no such folder.
std::map<int32_t, std::optional<Part>> list_parts(const std::filesystem::path& folder);

// The files of a checkpoint in a folder, by PartRange::file. Functions throw ddh::Error, naming the file.
class PartFiles {
 public:
  PartFiles(std::filesystem::path folder, const Manifest& manifest);
  void read(const PartRange& range, char* to) { of(range.file).read_at(range.offset, to, range.bytes); }
  // Makes the file of a codec if it is not there.
  void write(const PartRange& range, const char* from) {
    of(range.file, /*makes=*/true).write_at(range.offset, from, range.bytes);
  }
  // Makes those of the manifest's files that are not there, with their sizes.
  void make();
  // Whether all ranges have their checksums.
  [[nodiscard]] bool hold(const Part& part);
  // The ranges of a whole file.
  [[nodiscard]] std::vector<PartRange> ranges_of(uint32_t file);
  // PartRange::file of the codec's file of a rank; -1: the shared one.
  [[nodiscard]] uint32_t codec_file(int32_t rank) const;

 private:
  [[nodiscard]] std::string name_of(uint32_t file) const;
  const RangeFile& of(uint32_t file, bool makes = false);
  const std::filesystem::path folder_;
  std::vector<Manifest::File> of_manifest_;
  std::map<uint32_t, RangeFile> open_;
};

// Removes the checkpoints of other steps, and what a crash has left.
void keep_parts_of_step(const std::filesystem::path& root, int64_t step);

}  // namespace ddhost
