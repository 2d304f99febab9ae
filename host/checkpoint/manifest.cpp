// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "checkpoint/safetensors.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 4> kTensorKinds = {"parameter", "slot", "buffer", "strategy"};

constexpr size_t kMostTensors = 1'000'000;

// A file of a checkpoint is in its folder.
std::string file_name(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos || name == "..")
    throw std::invalid_argument("'" + name + "' is no plain file name");
  return name;
}

TensorKind kind_of(const std::string& name) {
  const auto at = std::find(kTensorKinds.begin(), kTensorKinds.end(), name);
  if (at == kTensorKinds.end()) ddh::fail(DDH_DATA_LOSS, "a tensor is of the unknown kind '", name, "'");
  return static_cast<TensorKind>(at - kTensorKinds.begin());
}

uint64_t number_of(const std::string& hexadecimal) {
  uint64_t sum = 0;
  const char* const end = hexadecimal.data() + hexadecimal.size();
  const auto [stopped, error] = std::from_chars(hexadecimal.data(), end, sum, 16);
  if (error != std::errc{} || stopped != end || hexadecimal.size() != 16)
    throw std::invalid_argument("a checksum is no number of 16 hexadecimal digits");
  return sum;
}

Json json_of(const Manifest::Tensor& tensor, const Manifest& manifest) {
  const StoredTensor& t = tensor.stored;
  Json out = {{"name", t.name},
              {"kind", kTensorKinds.at(static_cast<size_t>(t.kind))},
              {"file", manifest.files[t.file].name},
              {"dtype", safetensors_name(t.dtype)},
              {"shape", t.shape},
              {"offset", t.offset},
              {"bytes", t.bytes}};
  if (t.kind == TensorKind::param) out["weights_dtype"] = safetensors_name(t.export_dtype);
  if (!t.tied_names.empty()) out["tied_names"] = t.tied_names;
  if (t.holds_any_value) out["any_value"] = true;
  Json& sums = out["xxh3"] = Json::array();
  for (const uint64_t sum : tensor.sums) sums.push_back(hex(sum));
  return out;
}

Manifest::Tensor tensor_of(const Json& json, const Manifest& manifest) {
  Manifest::Tensor out;
  StoredTensor& t = out.stored;
  t.name = json.at("name");
  t.kind = kind_of(json.at("kind"));
  t.dtype = safetensors_dtype(json.at("dtype").get<std::string>());
  t.shape = json.at("shape").get<std::vector<int64_t>>();
  t.offset = json.at("offset");
  t.bytes = json.at("bytes");
  t.export_dtype =
      t.kind == TensorKind::param ? safetensors_dtype(json.at("weights_dtype").get<std::string>()) : t.dtype;
  t.tied_names = json.value("tied_names", std::vector<std::string>());
  t.holds_any_value = t.kind == TensorKind::buffer && json.value("any_value", false);
  const auto name = json.at("file").get<std::string>();
  const auto file = std::find_if(manifest.files.begin(), manifest.files.end(),
                                 [&](const Manifest::File& f) { return f.name == name; });
  if (file == manifest.files.end() || t.dtype == 0) throw std::invalid_argument("tensor " + t.name);
  t.file = static_cast<size_t>(file - manifest.files.begin());
  for (const Json& sum : json.at("xxh3")) out.sums.push_back(number_of(sum));
  uint64_t bytes = ddh_dtype_bytes(t.dtype);
  bool fits = true;
  for (const int64_t n : t.shape)
    fits = fits && n >= 0 && !__builtin_mul_overflow(bytes, static_cast<uint64_t>(n), &bytes);
  if (!fits || bytes != t.bytes || out.sums.size() != t.chunks() || t.offset > file->bytes ||
      t.bytes > file->bytes - t.offset)
    throw std::invalid_argument("tensor " + t.name + " does not fit");
  return out;
}

// JSON has no such numbers, and a schedule may keep an infinity.
constexpr std::array<const char*, 3> kNonfinite = {"nan", "inf", "-inf"};
Json json_of(const std::map<std::string, double>& numbers) {
  Json out = Json::object();
  for (const auto& [name, value] : numbers)
    out[name] = std::isfinite(value) ? Json(value) : Json(kNonfinite.at(std::isnan(value) ? 0 : value > 0 ? 1 : 2));
  return out;
}
std::map<std::string, double> numbers_of(const Json& json) {
  constexpr std::array<double, 3> kValues = {std::numeric_limits<double>::quiet_NaN(),
                                             std::numeric_limits<double>::infinity(),
                                             -std::numeric_limits<double>::infinity()};
  std::map<std::string, double> out;
  for (const auto& [name, value] : json.items()) {
    const auto* const at = std::find(kNonfinite.begin(), kNonfinite.end(), value);
    out[name] = at == kNonfinite.end() ? value.get<double>() : kValues.at(static_cast<size_t>(at - kNonfinite.begin()));
  }
  return out;
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }
BestState best_of(const Json& json, const Json& value, const Json& step) {
  return {json.value("metric", ""),
          json.value("mode", ""),
          json.value("samples", uint64_t{0}),
          {value.is_null() ? std::nullopt : std::optional(value.get<double>()), step.get<int64_t>()}};
}

Json json_of(const OptimizerProgress& o, const std::vector<std::string>& param_names) {
  Json steps = Json::object();
  for (size_t p = 0; p < param_names.size(); ++p) steps[param_names[p]] = o.param_steps.at(p);
  Json schedules = Json::array();
  for (const std::map<std::string, double>& numbers : o.schedules) schedules.push_back(json_of(numbers));
  Json out = {{"section", o.section}, {"plugin", o.plugin}, {"version", o.version}};
  out["schedules"] = std::move(schedules);
  if (!o.numbers.empty()) out["numbers"] = json_of(o.numbers);
  out["param_steps"] = std::move(steps);
  if (o.state_version != 0) out["state_version"] = o.state_version;
  return out;
}
OptimizerProgress optimizer_of(const Json& json, const std::vector<std::string>& param_names) {
  OptimizerProgress out;
  out.section = json.at("section");
  out.plugin = json.at("plugin");
  out.version = json.at("version");
  for (const Json& numbers : json.at("schedules")) out.schedules.push_back(numbers_of(numbers));
  if (json.contains("numbers")) out.numbers = numbers_of(json["numbers"]);
  for (const std::string& name : param_names) out.param_steps.push_back(json.at("param_steps").at(name));
  out.state_version = json.value("state_version", 0U);
  return out;
}

Json json_of(const TrainProgress& progress, const std::vector<std::string>& param_names) {
  const LossScaleState& scale = progress.loss_scale;
  const BestState& patience = progress.patience.best;
  Json out = {{"step", progress.step},
              {"phase", progress.phase},
              {"cycle", progress.cycle},
              {"phase_step", progress.phase_step},
              {"phase_begin", progress.phase_begin},
              {"evaluation_pending", progress.evaluation_pending},
              {"skipped_in_a_row", progress.skipped_in_a_row},
              {"patience",
               {{"metric", patience.metric},
                {"mode", patience.mode},
                {"samples", patience.samples},
                {"best", json_of(patience.best.value)},
                {"best_step", patience.best.step},
                {"without_better", progress.patience.without_better}}},
              {"loss_scale",
               {{"scale", scale.scale},
                {"hysteresis_left", scale.hysteresis_left},
                {"steps", scale.steps},
                {"last_overflow", scale.last_overflow}}}};
  if (!progress.best.metric.empty())
    out["best"] = {{"metric", progress.best.metric},
                   {"mode", progress.best.mode},
                   {"samples", progress.best.samples},
                   {"value", json_of(progress.best.best.value)},
                   {"step", progress.best.best.step}};
  for (const ProgramProgress& p : progress.programs)
    out["programs"].push_back({{"name", p.name},
                               {"samples", p.samples},
                               {"epoch", p.epoch_samples == 0 ? 0 : p.samples / p.epoch_samples},
                               {"epoch_samples", p.epoch_samples}});
  for (const OptimizerProgress& o : progress.optimizers) out["optimizers"].push_back(json_of(o, param_names));
  for (const OptimizerProgress& o : progress.followers) out["followers"].push_back(json_of(o, param_names));
  return out;
}

TrainProgress progress_of(const Json& json, const std::vector<std::string>& param_names) {
  TrainProgress out;
  out.step = json.at("step");
  out.phase = json.at("phase");
  out.cycle = json.at("cycle");
  out.phase_step = json.at("phase_step");
  out.phase_begin = json.at("phase_begin");
  out.evaluation_pending = json.at("evaluation_pending");
  out.skipped_in_a_row = json.value("skipped_in_a_row", int64_t{0});
  const Json& patience = json.at("patience");
  out.patience.best = best_of(patience, patience.at("best"), patience.at("best_step"));
  out.patience.without_better = patience.at("without_better");
  if (json.contains("best")) {
    const Json& best = json["best"];
    out.best = best_of(best, best.at("value"), best.at("step"));
  }
  const Json& scale = json.at("loss_scale");
  out.loss_scale = {scale.at("scale"), scale.at("hysteresis_left"), scale.at("steps"), scale.at("last_overflow")};
  for (const Json& p : json.at("programs"))
    out.programs.push_back({p.at("name"), p.at("samples"), p.at("epoch_samples")});
  for (const Json& o : json.at("optimizers")) out.optimizers.push_back(optimizer_of(o, param_names));
  for (const Json& o : json.value("followers", Json::array())) out.followers.push_back(optimizer_of(o, param_names));
  return out;
}

Manifest manifest_of(const Json& json) {
  Manifest m;
  m.seed = json.at("seed");
  m.world_size = json.at("world_size");
  m.program_version = json.at("program_version");
  m.config = json.at("config").dump();
  for (const auto& [name, value] : json.at("host").items()) m.host.emplace_back(name, value);
  for (const Json& p : json.at("plugins"))
    m.plugins.push_back({p.at("kind"), p.at("id"), p.at("version"), p.value("state_version", 0U)});
  for (const Json& f : json.at("files"))
    m.files.push_back({file_name(f.at("name")), f.at("bytes"), f.at("header_bytes"), number_of(f.at("header_xxh3"))});
  for (const Json& t : json.at("tensors")) {
    m.tensors.push_back(tensor_of(t, m));
    if (m.tensors.back().stored.kind == TensorKind::param) m.param_names.push_back(m.tensors.back().stored.name);
  }
  for (const Json& l : json.value("layouts", Json::array())) {
    StoredLayout& layout = m.layouts.emplace_back();
    l.at("name").get_to(layout.name);
    l.at("refused").get_to(layout.refused);
    l.at("transposed").get_to(layout.transposed);
    for (const std::string& name : layout.transposed)
      if (const Manifest::Tensor* const t = m.find(name); t == nullptr || t->stored.shape.size() != 2)
        throw std::invalid_argument("the layout '" + layout.name + "' transposes '" + name + "', which is no matrix");
  }
  m.progress = progress_of(json.at("progress"), m.param_names);
  return m;
}

}  // namespace

const Manifest::Tensor* Manifest::find(const std::string& name) const {
  const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.stored.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

std::string manifest_text(const Manifest& m) {
  Json out = {{"format", "ddhost checkpoint"},        {"format_version", kCheckpointVersion},
              {"program_version", m.program_version}, {"seed", m.seed},
              {"world_size", m.world_size},           {"progress", json_of(m.progress, m.param_names)}};
  out["plugins"] = Json::array();
  for (const UsedPlugin& p : m.plugins) {
    out["plugins"].push_back({{"kind", p.kind}, {"id", p.id}, {"version", p.version}});
    if (p.state_version != 0) out["plugins"].back()["state_version"] = p.state_version;
  }
  out["host"] = Json::object();
  for (const auto& [name, value] : m.host) out["host"][name] = value;
  for (const StoredLayout& layout : m.layouts)
    out["layouts"].push_back({{"name", layout.name}, {"transposed", layout.transposed}, {"refused", layout.refused}});
  out["config"] = Json::parse(m.config);
  out["chunk_bytes"] = kChunkBytes;
  for (const Manifest::File& f : m.files)
    out["files"].push_back(
        {{"name", f.name}, {"bytes", f.bytes}, {"header_bytes", f.header_bytes}, {"header_xxh3", hex(f.header_sum)}});
  out["tensors"] = Json::array();
  for (const Manifest::Tensor& tensor : m.tensors) out["tensors"].push_back(json_of(tensor, m));
  return out.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  try {
    const Json json = read_json(text, kMostTensors);
    if (json.at("format") != "ddhost checkpoint")
      ddh::fail(DDH_INVALID_ARGUMENT, "'", path, "' is not a manifest of a ddhost checkpoint");
    const int64_t version = json.at("format_version");
    if (version != kCheckpointVersion)
      ddh::fail(DDH_UNIMPLEMENTED, "'", path, "' is of version ", version,
                " of the checkpoint format, but this ddhost reads ", kCheckpointVersion,
                "; use the ddhost that wrote it, or a newer one");
    if (json.at("chunk_bytes") != kChunkBytes) throw std::invalid_argument("chunk_bytes");
    return manifest_of(json);
  } catch (const nlohmann::json::exception& e) {
    ddh::fail(DDH_DATA_LOSS, "'", path, "' is damaged: ", reason_of(e));
  } catch (const JsonError& e) {
    ddh::fail(DDH_DATA_LOSS, "'", path, "' is damaged: ", e.what());
  } catch (const std::logic_error& e) {  // of numbers and of fields that contradict each other
    ddh::fail(DDH_DATA_LOSS, "'", path, "' is damaged: ", e.what());
  }
}

uint64_t sum_of(const void* data, uint64_t bytes) { return XXH3_64bits(data, bytes); }

std::string hex(uint64_t sum) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(sum));
  return text.data();
}

}  // namespace ddhost
