// SPDX-License-Identifier: Apache-2.0
//
// cli/export.cpp: `ddhost export`: the weights of a checkpoint for other programs.
#include <array>
#include <charconv>
#include <cmath>
#include <ostream>

#include "checkpoint/checkpoint_export.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/named_checkpoint.hpp"
#include "cli/commands.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/launch.hpp"

namespace ddhost {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr std::array<Unit, 8> kUnits = {{{"", 1},
                                         {"B", 1},
                                         {"KB", 1e3},
                                         {"MB", 1e6},
                                         {"GB", 1e9},
                                         {"KiB", 1024.0},
                                         {"MiB", 1048576.0},
                                         {"GiB", 1073741824.0}}};

// "5GB", "500MiB", "1000000".
uint64_t bytes_of(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  for (const Unit& known : kUnits) {
    if (error != std::errc{} || unit != known.name) continue;
    const double bytes = number * known.bytes;
    if (bytes >= 1 && bytes < 9e18) return static_cast<uint64_t>(bytes);
  }
  ddh::fail(DDH_INVALID_ARGUMENT, "--max-shard-size ", text,
            " is not a size; give a number, alone or with KB, MB, GB, KiB, MiB or GiB");
}

}  // namespace

int export_weights(const ExportArgs& args, std::ostream& out) {
  const uint64_t most_bytes = bytes_of(args.max_shard_size);
  const NamedCheckpoint named = named_checkpoint(args.checkpoint);
  for (const std::string& note : named.notes) print_sentence(note);
  const Manifest manifest = open_checkpoint(named.folder);
  const ExportedFiles written =
      export_checkpoint(named.folder, manifest, args.folder, most_bytes,
                        args.layout == "transformers" ? ExportLayout::transformers : ExportLayout::model);
  for (const std::string& warning : written.warnings) print_sentence("warning: " + warning);
  for (const std::filesystem::path& file : written.files) out << file.string() << '\n';
  return 0;
}

}  // namespace ddhost
