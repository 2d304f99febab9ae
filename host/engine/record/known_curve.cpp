// SPDX-License-Identifier: Apache-2.0
#include "engine/record/known_curve.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/progress_text.hpp"

namespace ddhost {
namespace {

// Equal whatever the order of keys.
using SortedJson = nlohmann::json;

constexpr size_t kMostNamed = 6;  // options in the sentence
constexpr const char* kSamples = "samples of a step";

// Sections whose options decide the losses, and of others the options that do.
constexpr std::array<std::string_view, 6> kSections = {"model", "train", "precision", "optimizer", "schedule", "data"};
// Options of these sections that do not: of evaluations and files, those of which only the product counts, and the library of
// products, which the processor decides.
constexpr std::array<std::string_view, 13> kFree = {
    "train.eval_every",       "train.eval_every_epochs", "train.eval_batches", "train.save_final", "train.recompute",
    "train.grad_accum_steps", "data.micro_batch",        "data.workers",       "data.path",        "data.val_path",
    "train.patience",         "train.init_from",         "model.matmul"};

bool decides(const std::string& key) {
  if (key == "run.seed") return true;
  const std::string_view section = std::string_view(key).substr(0, key.find('.'));
  for (const std::string_view one : kSections)
    if (section == one || section.starts_with(std::string(one) + "_"))
      return std::find(kFree.begin(), kFree.end(), key) == kFree.end();
  return false;
}

void flatten(const SortedJson& object, const std::string& prefix, std::map<std::string, SortedJson>& out) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_object())
      flatten(value, prefix + name + ".", out);
    else if (decides(prefix + name))
      out[prefix + name] = value;
  }
}

// A plugin's path has its name at the end.
SortedJson comparable(const SortedJson& value) {
  if (!value.is_string()) return value;
  const auto text = value.get<std::string>();
  return text.substr(text.find_last_of(":/") + 1);
}

double samples_of_step(const SortedJson& config, int64_t world_size) {
  const SortedJson micro_batch = config.at("data").value("micro_batch", SortedJson());
  if (!micro_batch.is_number()) return 0;
  return micro_batch.get<double>() * config.at("train").value("grad_accum_steps", 1.0) *
         static_cast<double>(world_size);
}

std::string loss_text(double loss) { return number_as("%.5g", loss); }

}  // namespace

KnownCurve::KnownCurve(const std::string& text, const std::string& config_text, const std::string& facts,
                       int64_t world_size) {
  const SortedJson file = SortedJson::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  const auto has = [&](const char* name, auto is) { return file.is_object() && file.contains(name) && is(file[name]); };
  const auto is_list = [](const SortedJson& value) { return value.is_array(); };
  if (!has("losses", is_list) || !has("noise", is_list) || file["noise"].size() != file["losses"].size() ||
      !has("options", [](const SortedJson& value) { return value.is_object(); }))
    ddh::fail(DDH_DATA_LOSS, "it has no lists 'losses' and 'noise' of one length and no object 'options'");
  const bool has_every_step = !file.contains("steps");
  if (!has_every_step && (!has("steps", is_list) || file["steps"].size() != file["losses"].size()))
    ddh::fail(DDH_DATA_LOSS, "its 'steps' is no list of the length of 'losses'");
  for (size_t i = 0; i < file["losses"].size(); ++i) {
    if (!file["losses"][i].is_number() || !file["noise"][i].is_number() ||
        !(has_every_step || file["steps"][i].is_number_integer()))
      ddh::fail(DDH_DATA_LOSS, "entry ", i, " of 'steps', 'losses' or 'noise' is no number");
    const int64_t step = has_every_step ? static_cast<int64_t>(i) + 1 : file["steps"][i].get<int64_t>();
    points_[step] = {file["losses"][i].get<double>(), file["noise"][i].get<double>()};
  }
  const SortedJson config =
      SortedJson::parse(config_text, nullptr, /*allow_exceptions=*/true, /*ignore_comments=*/true);
  std::map<std::string, SortedJson> options;
  flatten(config, "", options);
  for (const auto& [key, value] : file["options"].items())
    if (decides(key) && (!options.contains(key) || comparable(options[key]) != comparable(value)))
      other_options_.push_back(key);
  const SortedJson samples = file["options"].value(kSamples, SortedJson(0));
  if (!samples.is_number() || samples.get<double>() != samples_of_step(config, world_size))
    other_options_.emplace_back(kSamples);
  compare_surroundings(file.value("surroundings", SortedJson()), facts);
}

// Other data have other losses, and other instructions of the processor other bits.
void KnownCurve::compare_surroundings(const Json& documented, const std::string& facts) {
  const Json mine = Json::parse(facts, nullptr, /*allow_exceptions=*/false);
  if (!documented.is_object() || !mine.is_object()) return;
  const Json samples = documented.value("epoch_samples", Json()), my_samples = mine.value("epoch_samples", Json());
  if (samples.is_number() && my_samples.is_number() && samples != my_samples)
    other_data_ = ddh::str("; other data: an epoch of ", my_samples.dump(), " samples instead of ", samples.dump());
  const Json instructions = documented.value("instructions", Json());
  const Json mine_are = mine.value("machine", Json::object()).value("instructions", Json());
  if (instructions.is_string() && mine_are.is_string() && instructions != mine_are)
    other_instructions_ = "; on '" + plain_text(mine_are.get<std::string>(), kShownValue) + "' instead of '" +
                          plain_text(instructions.get<std::string>(), kShownValue) + "'";
}

void KnownCurve::add(int64_t step, double loss) {
  const auto at = points_.find(step);
  if (at == points_.end()) return;
  ++compared_;
  last_ = Seen{step, loss, at->second};
  if (loss == at->second.loss) return;
  if (!first_other_) first_other_ = last_;
  if (!first_outside_ && !(std::abs(loss - at->second.loss) <= at->second.noise)) first_outside_ = last_;
}

std::string KnownCurve::verdict() const {
  if (!first_other_) return ddh::str("same bits in all ", counted(static_cast<uint64_t>(compared_), "documented step"));
  const auto differ = ddh::str("other bits from step ", first_other_->step, " on");
  if (!first_outside_) return "within the noise; " + differ;
  return ddh::str("it left the noise at step ", first_outside_->step, ", with ", loss_text(first_outside_->loss),
                  " instead of ", loss_text(first_outside_->documented.loss), " +- ",
                  number_as("%.2g", first_outside_->documented.noise));
}

std::string KnownCurve::text() const {
  if (!last_) return "";
  std::string out = ddh::str("step ", last_->step, ": loss ", loss_text(last_->loss), ", documented ",
                             loss_text(last_->documented.loss), ": ", verdict());
  out += other_data_;
  if (first_other_) out += other_instructions_;
  if (other_options_.empty()) return out;
  out += "; other than in the documented run:";
  for (size_t i = 0; i < std::min(other_options_.size(), kMostNamed); ++i)
    out += (i == 0 ? " " : ", ") + plain_text(other_options_[i], kShownValue);
  if (other_options_.size() > kMostNamed) out += ddh::str(" and ", other_options_.size() - kMostNamed, " more");
  return out;
}

}  // namespace ddhost
