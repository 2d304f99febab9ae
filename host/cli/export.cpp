// SPDX-License-Identifier: Apache-2.0
//
// cli/export.cpp: `ddhost export`: the weights of a checkpoint for other programs.
#include <ostream>

#include "base/text.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/whole_checkpoints.hpp"
#include "cli/commands.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/launch.hpp"

namespace ddhost {
namespace {

// "5GB", "500MiB", "1000000".
uint64_t bytes_of(const std::string& text) {
  if (const std::optional<uint64_t> bytes = bytes_from_text(text)) return *bytes;
  ddh::fail(DDH_INVALID_ARGUMENT, "--max-shard-size ", text, " is not a size; ", kSizeForms);
}

}  // namespace

int export_weights(const ExportArgs& args, std::ostream& out) {
  const uint64_t most_bytes = bytes_of(args.max_shard_size);
  const NamedCheckpoint named = named_checkpoint(args.checkpoint);
  for (const std::string& note : named.notes) print_sentence(note);
  const Manifest manifest = open_checkpoint(named.folder);
  const ExportedFiles written = export_checkpoint(named.folder, manifest, args.folder, most_bytes, args.layout);
  for (const std::string& warning : written.warnings) print_sentence("warning: " + warning);
  for (const std::filesystem::path& file : written.files) out << file.string() << '\n';
  return 0;
}

}  // namespace ddhost
