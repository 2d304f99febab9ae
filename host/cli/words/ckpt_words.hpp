// SPDX-License-Identifier: Apache-2.0
//
// cli/words/ckpt_words.hpp: the words of the commands on checkpoints.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/words/command_line.hpp"

namespace ddhost {

// `ddhost ckpt ...`; the action is set when its subcommand is parsed.
CLI::App* add_ckpt(CLI::App& app, CkptArgs& args);
// `ddhost export ...`
CLI::App* add_export(CLI::App& app, ExportArgs& args);

}  // namespace ddhost
