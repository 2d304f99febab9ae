// SPDX-License-Identifier: Apache-2.0
//
// cli/peek.cpp: `ddhost data peek`. A rank of its own makes the batches, so that the launcher can name a model that crashes or
// hangs in one.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/durable.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/user_files.hpp"
#include "config/replaced.hpp"
#include "config/run_length.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/sheet.hpp"
#include "draw/text.hpp"
#include "engine/loop/peek.hpp"
#include "engine/record/rank_log.hpp"
#include "launch/launch.hpp"
#include "plan/load_guard.hpp"
#include "plan/prepare.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The pictures of all parts of a name, and where each sample's are.
struct NamedSheet {
  Sheet rows;
  fs::path file;
  std::map<uint64_t, std::string> places;  // by index of the sample: "row 1, column 3"
};
using Sheets = std::map<std::string, NamedSheet>;

Picture frame_of(const PeekedPart& part, uint64_t frame) {
  const auto& shape = part.shape;
  return {shape[1], shape[2], shape[3], part.pixels.data() + frame * shape[1] * shape[2] * shape[3]};
}

// Images lie in a square, line by line. The frames of a video are a line.
Sheets sheets_of(const Peeked& seen) {
  Sheets sheets;
  const auto columns = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(seen.samples.size()))));
  for (const PeekedSample& sample : seen.samples)
    for (const PeekedPart& part : sample.parts) {
      if (part.kind != PartKind::kPixels) continue;
      NamedSheet& sheet = sheets[part.name];
      const uint64_t frames = part.shape[0];
      if (sheet.rows.empty() || frames > 1 || sheet.rows.back().size() >= columns) sheet.rows.emplace_back();
      for (uint64_t f = 0; f < frames; ++f) sheet.rows.back().push_back(frame_of(part, f));
      sheet.places[sample.index] =
          ddh::str("row ", sheet.rows.size(), frames > 1 ? "" : ddh::str(", column ", sheet.rows.back().size()));
    }
  return sheets;
}

// Words of a model as a part of a file's name.
std::string file_word(std::string word) {
  std::replace_if(
      word.begin(), word.end(),
      [](unsigned char c) { return c >= 0x80 || (std::isalnum(c) == 0 && c != '-' && c != '_'); }, '_');
  return word.substr(0, 64);
}

// Never takes the place of another file.
void write_sheets(const fs::path& folder, const Peeked& seen, uint64_t first, Sheets& sheets) {
  if (sheets.empty()) return;
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder))
    ddh::fail(DDH_PERMISSION_DENIED, "--out '", plain_text(folder.string(), kShownValue), "' is no folder for the ",
              "PNG files", error ? ": " + error.message() : "", "; give a folder that can be written to");
  for (auto& [name, sheet] : sheets) {
    const std::string png = as_png(sheet.rows, "'" + name + "'");
    const fs::path path =
        folder / ddh::str("peek-", file_word(seen.program), "-", seen.epoch, "-", first, "-", file_word(name), ".png");
    const NewFile file(folder, path);
    file.data().write_at(0, png.data(), png.size());
    sheet.file = file.publish_beside(path);
  }
}

std::string size_text(const PeekedPart& part) {
  const auto& shape = part.shape;
  return ddh::str(shape[0] > 1 ? ddh::str(shape[0], " of ") : "", shape[2], " x ", shape[1],
                  shape[3] == 1 ? " gray" : " colour");
}

// Few numbers are printed, of many the first and what they are like.
std::string values_text(const PeekedPart& part) {
  constexpr size_t kMost = 16, kShown = 6;
  const std::vector<float>& values = part.values;
  if (values.empty()) return "no numbers";
  std::string text;
  const size_t shown = values.size() <= kMost ? values.size() : kShown;
  for (size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : " ") + short_number(values[i]);
  if (shown == values.size()) return text;
  std::string shape;
  for (const uint64_t n : part.shape)
    if (n != 1) shape += ddh::str(shape.empty() ? "" : " x ", n);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return ddh::str(shape, " numbers from ", short_number(*least), " to ", short_number(*most), ": ", text, " ...");
}

// "  label: 7"; a text of several lines follows its name, with a bar before each line.
std::string text_lines(const PeekedPart& part) {
  const std::string name = "  " + one_line(part.name) + ":";
  const bool is_long = part.text.find('\n') != std::string::npos;
  std::string out = name;
  const size_t most = 8 * part.text.size() + 64;  // escaped
  for (size_t from = 0; from <= part.text.size();) {
    const size_t end = std::min(part.text.find('\n', from), part.text.size());
    out += (is_long ? "\n  | " : " ") + one_line(std::string_view(part.text).substr(from, end - from), most);
    from = end + 1;
  }
  return out + "\n";
}

std::string as_lines(const Peeked& seen, const Sheets& sheets) {
  std::string out = ddh::str(one_line(seen.model), ", program '", one_line(seen.program), "', epoch ", seen.epoch, ": ",
                             counted(seen.samples.size(), "sample"), " of ", seen.epoch_size, "\n");
  for (const PeekedSample& sample : seen.samples) {
    out += ddh::str("index ", sample.index, ": sample ", sample.sample, " of the data\n");
    for (const PeekedPart& part : sample.parts) {
      if (part.kind == PartKind::kText) out += text_lines(part);
      if (part.kind == PartKind::kValues) out += ddh::str("  ", one_line(part.name), ": ", values_text(part), "\n");
      if (part.kind == PartKind::kPixels)
        out += ddh::str("  ", one_line(part.name), ": ", size_text(part), ", ",
                        sheets.at(part.name).places.at(sample.index), "\n");
    }
  }
  for (const auto& [name, sheet] : sheets)
    out += ddh::str("sheet of '", one_line(name), "': ", one_line(sheet.file.string(), 4096), "\n");
  return out;
}

OrderedJson json_of(const PeekedPart& part, uint64_t index, const Sheets& sheets) {
  OrderedJson out = {{"name", part.name}};
  if (part.kind == PartKind::kText) out["text"] = part.text;
  if (part.kind == PartKind::kText) return out;
  out["shape"] = part.shape;
  if (part.kind == PartKind::kValues) out["values"] = part.values;
  if (part.kind == PartKind::kPixels) {
    const NamedSheet& sheet = sheets.at(part.name);
    out["file"] = plain_text(sheet.file.string(), 4096);
    out["place"] = sheet.places.at(index);
  }
  return out;
}

std::string as_json(const Peeked& seen, const Sheets& sheets) {
  OrderedJson out = {{"model", seen.model},
                     {"program", seen.program},
                     {"epoch", seen.epoch},
                     {"epoch_size", seen.epoch_size},
                     {"samples", OrderedJson::array()}};
  for (const PeekedSample& sample : seen.samples) {
    OrderedJson parts = OrderedJson::array();
    for (const PeekedPart& part : sample.parts) parts.push_back(json_of(part, sample.index, sheets));
    out["samples"].push_back({{"index", sample.index}, {"sample", sample.sample}, {"parts", std::move(parts)}});
  }
  return out.dump(2, ' ', /*ensure_ascii=*/true, OrderedJson::error_handler_t::replace) + "\n";
}

// In the rank.
int print_samples(const PreparedRun& run, const PeekArgs& args, const RankSeat& seat) {
  const PeekWish wish{args.program, static_cast<uint64_t>(args.epoch), static_cast<uint64_t>(args.index),
                      static_cast<uint64_t>(args.samples), static_cast<uint64_t>(run.world_size)};
  const Peeked seen = in_words_of_user(run.config, [&] { return peek(run, run.config.clone(), seat, wish); });
  Sheets sheets = sheets_of(seen);
  write_sheets(args.out, seen, wish.index, sheets);
  if (!seen.is_read)
    print_sentence(ddh::str("note: the run ends before epoch ", seen.epoch, " (counted from 0) of program '",
                            one_line(seen.program), "', so it reads none of these samples; with more train.epochs or ",
                            "train.steps it would"));
  write_stdout(args.json ? as_json(seen, sheets) : as_lines(seen, sheets));
  return 0;
}

}  // namespace

int peek_data(const CommandLine& line, Registry& registry) {
  UserConfig user = read_user_files(line, line.overrides, registry).user;
  static_cast<void>(replace_excluded_options(user));
  const Config host(user, run_sections(user), /*plugin_sections=*/false);
  const RunPlace place = choose_place(user, registry, /*cluster=*/nullptr, kMostPlanned);
  LaunchArgs args;
  args.watchdog = watchdog_limits(host);
  args.unit = "batch";
  LoaderRecord record;
  const auto prepare = [&](LoaderRecord& of_loader) -> Prepared {
    const auto run = std::make_shared<PreparedRun>(prepare_run(user, registry, place, Work::kTrain, &of_loader));
    run->run_dir.clear();  // nothing is written there
    for (const auto& warnings : {registry.warnings(), run->config.warnings()})
      for (const std::string& warning : warnings) print_sentence("warning: " + warning);
    return {run->ranks_are_threads,
            {run->model.file.string(), run->comm.file.string(), run->device.file.string()},
            [run, &line](const RankSeat& seat) { return print_samples(*run, line.peek, seat); }};
  };
  const Outcome outcome = launch(args, prepare, record);
  if (!outcome.sentence.empty()) print_sentence(outcome.sentence);
  return outcome.exit_code;
}

}  // namespace ddhost
