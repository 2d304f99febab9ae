// SPDX-License-Identifier: Apache-2.0
#include "cli/words/ckpt_words.hpp"

#include <charconv>
#include <functional>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// A check of an option's text: an integer of 64 bits, `least` or more.
std::function<std::string(const std::string&)> at_least(int64_t least) {
  return [least](const std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range) return "'" + plain_text(text, kShownValue) + "' has more than 64 bits";
    if (error != std::errc{} || end != text.data() + text.size())
      return "'" + plain_text(text, kShownValue) + "' is no integer";
    return value < least ? ddh::str(value, " is less than ", least) : "";
  };
}

}  // namespace

CLI::App* add_ckpt(CLI::App& app, CkptArgs& args) {
  CLI::App* ckpt = app.add_subcommand("ckpt", "list, show, verify, compare, remove or import checkpoints");
  ckpt->require_subcommand(1);
  const auto add = [&](CkptAction action, const char* name, const char* help, const char* what, int paths) {
    CLI::App* sub = ckpt->add_subcommand(name, help);
    sub->add_option("path", args.paths, what)->required()->expected(paths);
    sub->add_flag("--json", args.json, "print JSON");
    sub->callback([&args, action] { args.action = action; });
    return sub;
  };
  add(CkptAction::kList, "ls", "list the checkpoints of a run", "folder of the run", 1);
  add(CkptAction::kShow, "show", "show the contents of a checkpoint",
      "folder of a checkpoint, or of a run for its newest", 1);
  add(CkptAction::kVerify, "verify",
      "read every byte and compare the checksums; exit code 1 if a checkpoint is damaged, or holds values from which "
      "no "
      "run can go on",
      "folder of a checkpoint, or of a run", 1);
  add(CkptAction::kDiff, "diff",
      "show which tensors of two checkpoints differ, and by how much; exit code 1 if any does",
      "folders of checkpoints, or of runs for their newest", 2);
  CLI::App* prune = add(CkptAction::kPrune, "prune", "remove checkpoints of a run", "folder of the run", 1);
  prune->add_option("--keep-last", args.keep_last, "number of newest checkpoints to keep")->check(at_least(1));
  prune->add_option("--keep-every", args.keep_every, "also keep checkpoints whose step is a multiple of this")
      ->check(at_least(0));
  prune->add_option("--after", args.after, "remove those of later steps than this")->check(at_least(0));
  CLI::App* import =
      add(CkptAction::kImport, "import", "convert a checkpoint that another program wrote, with its optimizer state",
          "folder that the other program wrote", 1);
  import
      ->add_option(
          "--like", args.like,
          "checkpoint of the run to continue, or that run's folder; the new one is this with the imported values")
      ->required();
  import->add_option("--out", args.out, "folder of a run, in which the checkpoint is made")->required();
  import->add_option("--format", args.format, "plugin that reads the folder: auto, name, path or path:id");
  import->add_option("--convert-memory", args.convert_memory,
                     "most memory of the process that reads it: 8GiB; auto: a quarter of the machine's");
  import->add_option("--watchdog-abort", args.watchdog_abort, "longest call of the format, in seconds; 0: no limit")
      ->check(CLI::Range(0.0, 1e6));
  return ckpt;
}

CLI::App* add_export(CLI::App& app, ExportArgs& args) {
  CLI::App* command = app.add_subcommand("export", "write the weights of a checkpoint as safetensors files");
  command->add_option("checkpoint", args.checkpoint, "folder of a checkpoint, or of a run for its newest")->required();
  command->add_option("folder", args.folder, "where the files go")->required();
  command->add_option("--max-shard-size", args.max_shard_size, "largest file: 5GB, 500MiB");
  command->add_option("--layout", args.layout,
                      "how linear weights are stored: model, or as the program does that is to open them; "
                      "`ddhost ckpt show` lists the layouts of a checkpoint");
  return command;
}

}  // namespace ddhost
