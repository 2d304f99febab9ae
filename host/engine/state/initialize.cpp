// SPDX-License-Identifier: Apache-2.0
#include "engine/state/initialize.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <set>
#include <string_view>

#include "checkpoint/checkpoint_layout.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/usable_values.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/numerics/kernels.hpp"
#include "engine/services/memory/staging.hpp"
#include "engine/state/state_entries.hpp"

namespace ddhost {
namespace {

// "a, b, c and 4 more"
std::string list_text(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i == 0 ? "'" : ", '") + names[i] + "'";
  return names.size() > kShown ? ddh::str(text, " and ", names.size() - kShown, " more") : text;
}

AllowedNames allowed_names(const nlohmann::json& value, const char* key) {
  AllowedNames out;
  if (value.is_boolean()) {
    if (value.get<bool>()) out.patterns = {"*"};
    return out;
  }
  const bool is_list = value.is_array() && std::all_of(value.begin(), value.end(),
                                                       [](const nlohmann::json& item) { return item.is_string(); });
  if (!is_list)
    ddh::fail(
        DDH_INVALID_ARGUMENT, key, " = ", value.dump(),
        " in train.init_from is neither true nor false nor a list of names; names may hold *, such as [\"head.*\"]");
  out.patterns = value.get<std::vector<std::string>>();
  return out;
}

std::string text_of(const nlohmann::json& value, const char* key) {
  if (!value.is_string())
    ddh::fail(DDH_INVALID_ARGUMENT, key, " = ", value.dump(), " in train.init_from is not a string; give a string");
  return value.get<std::string>();
}

InitFile init_file(const nlohmann::json& entry) {
  InitFile out;
  for (const auto& [key, value] : entry.items()) {
    if (key == "file")
      out.file = text_of(value, "file");
    else if (key == "prefix")
      out.prefix = text_of(value, "prefix");
    else if (key == "from")
      out.from = text_of(value, "from");
    else if (key == "allow_missing")
      out.allow_missing = allowed_names(value, "allow_missing");
    else if (key == "allow_surplus")
      out.allow_surplus = allowed_names(value, "allow_surplus");
    else
      ddh::fail(DDH_INVALID_ARGUMENT, "unknown key '", key,
                "' in train.init_from; an entry has file, prefix, from, allow_missing and allow_surplus");
  }
  if (out.file.empty()) ddh::fail(DDH_INVALID_ARGUMENT, "an entry of train.init_from names no file; add \"file\"");
  return out;
}

// The probability of a normal within the bounds of DDH_INIT_TRUNC_NORMAL.
double part_within(const ddh_param_desc& param) {
  const auto below = [&](double x) { return 0.5 * std::erfc(-(x - param.init_a) / (param.init_b * std::sqrt(2.0))); };
  return below(param.init_high) - below(param.init_low);
}

[[noreturn]] void fail_nonfinite(const char* kind, const char* name, uint64_t element) {
  ddh::fail(DDH_DATA_LOSS, "the weights of train.init_from (--weights) are not finite: ", kind, " '", name,
            "' from element ", element, " on; give a file of a run that ended well");
}

constexpr double kLeastPart = 1.0 / 64;  // limits the number of draws to some hundred, except for few values

void check_truncated(const ddh_param_desc& param) {
  const bool is_finite = std::isfinite(param.init_a) && std::isfinite(param.init_b) && std::isfinite(param.init_low) &&
                         std::isfinite(param.init_high);
  if (!is_finite || param.init_b <= 0 || param.init_low >= param.init_high)
    ddh::fail(DDH_INVALID_ARGUMENT, "parameter '", param.name, "' is drawn from a normal of mean ", param.init_a,
              " and deviation ", param.init_b, " within [", param.init_low, ", ", param.init_high,
              "]; give finite numbers, a deviation above 0 and low < high");
  if (part_within(param) < kLeastPart)
    ddh::fail(DDH_INVALID_ARGUMENT, "parameter '", param.name, "': only ", part_within(param), " of a normal of mean ",
              param.init_a, " and deviation ", param.init_b, " lies within [", param.init_low, ", ", param.init_high,
              "]; widen the bounds, or use DDH_INIT_UNIFORM");
}

// Element i reads the pairs of normals i, i + numel, i + 2 numel ... of the stream and takes the first value within the
// bounds, so it does not depend on other elements. Bounds and values are compared after rounding to fp32.
float truncated_normal(const ddh::CounterRng& rng, const ddh_param_desc& param, uint64_t i) {
  const auto mean = static_cast<float>(param.init_a), deviation = static_cast<float>(param.init_b);
  const auto is_within = [&](float x) {
    return static_cast<double>(x) >= param.init_low && static_cast<double>(x) <= param.init_high;
  };
  constexpr uint64_t kMostPairs = 1 << 13;  // (1 - kLeastPart) to the power of twice as many is 1e-112
  for (uint64_t pair = 0; pair < kMostPairs; ++pair) {
    const auto [first, second] = rng.normal_pair(i + pair * param.numel);
    for (const float normal : {first, second}) {
      const float value = mean + deviation * normal;
      if (is_within(value)) return value;
    }
  }
  ddh::fail(DDH_OUT_OF_RANGE, "no fp32 value of parameter '", param.name, "' was found within [", param.init_low, ", ",
            param.init_high, "]; widen the bounds");
}

}  // namespace

bool AllowedNames::allows(const std::string& name) const {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

std::vector<InitFile> init_files(const std::string& json, const std::map<std::string, ConvertedFile>& converted) {
  const nlohmann::json given = nlohmann::json::parse(json);
  std::vector<InitFile> out;
  if (given.is_string() && !given.get<std::string>().empty()) out.push_back({given.get<std::string>(), ""});
  for (const nlohmann::json& entry : given.is_array() ? given : nlohmann::json::array())
    out.push_back(init_file(entry));
  for (InitFile& entry : out)
    if (const auto at = converted.find(entry.file); at != converted.end()) entry.converted = at->second.path();
  return out;
}

// What an entry may fill: a parameter or a buffer, under its name and those tied to it.
struct WeightsFiles::Wanted {
  std::vector<std::string> names;
  std::vector<int64_t> shape;
  int32_t dtype;  // of a buffer; 0: any floating-point one
  bool may_lack;
  const SafetensorsFile::Tensor** tensor;
  uint8_t* is_transposed;  // nullptr: of a buffer

  // Its names in the entry's file, whether the file has them or not.
  [[nodiscard]] std::vector<std::string> names_in(const InitFile& entry) const {
    std::vector<std::string> out;
    for (const std::string& name : names)
      if (name.starts_with(entry.prefix)) out.push_back(entry.from + name.substr(entry.prefix.size()));
    return out;
  }
  // The first of them that the file has, or nothing.
  [[nodiscard]] std::optional<std::string> name_in(const TensorFiles& file, const InitFile& entry) const {
    for (const std::string& name : names_in(entry))
      if (file.find(name) != nullptr) return name;
    return std::nullopt;
  }
  void check_dtype(const SafetensorsFile::Tensor& found, const std::string& file) const {
    const bool is_float = found.dtype == DDH_F32 || found.dtype == DDH_BF16 || found.dtype == DDH_F16;
    if (dtype == 0 ? is_float : found.dtype == dtype) return;
    ddh::fail(DDH_UNIMPLEMENTED, "tensor '", names.front(), "' in '", file,
              dtype == 0 ? "' is neither F32 nor BF16 nor F16" : "' has another dtype than the model's buffer",
              "; convert the file");
  }
};

// The words before all of the model's names in the file, such as the "model." of a module that holds it, or "".
std::string WeightsFiles::wrapper_in(const TensorFiles& file, const std::vector<Wanted>& wanted) {
  if (wanted.empty()) return "";
  const std::string& first = wanted.front().names.front();
  for (const auto& [name, tensor] : file.tensors()) {
    if (!name.ends_with(first)) continue;
    const InitFile entry{.file = "", .prefix = "", .from = name.substr(0, name.size() - first.size())};
    if (std::all_of(wanted.begin(), wanted.end(),
                    [&](const Wanted& one) { return one.may_lack || one.name_in(file, entry); }))
      return entry.from;
  }
  return "";
}

WeightsFiles::WeightsFiles(const ddh_model_desc& model, const std::vector<InitFile>& entries)
    : model_(model), params_(model.n_params), buffers_(model.n_buffers), is_transposed_(model.n_params) {
  files_.reserve(entries.size());
  const std::vector<Wanted> wanted = all_wanted();
  for (const InitFile& entry : entries) take(entry, wanted);
  for (const InitFile& entry : entries) require_all(entry, wanted);
  if (!entries.empty()) note_drawn();
}

std::vector<WeightsFiles::Wanted> WeightsFiles::all_wanted() {
  std::vector<Wanted> wanted;
  for (uint32_t p = 0; p < model_.n_params; ++p) {
    const ddh_param_desc& param = *model_.params[p];
    wanted.push_back(
        {{param.name}, {param.shape, param.shape + param.n_dims}, 0, false, &params_[p], &is_transposed_[p]});
    for (const char* const* tied = param.tied_names; tied != nullptr && *tied != nullptr; ++tied)
      wanted.back().names.emplace_back(*tied);
  }
  for (uint32_t b = 0; b < model_.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *model_.buffers[b];
    const bool may_lack = buffer.sync == DDH_SYNC_NEVER;  // it keeps the model's value
    wanted.push_back(
        {{buffer.name}, {buffer.shape, buffer.shape + buffer.n_dims}, buffer.dtype, may_lack, &buffers_[b], nullptr});
  }
  return wanted;
}

StoredLayout WeightsFiles::layout_of(const TensorFiles& file, const InitFile& entry,
                                     const std::vector<Wanted>& wanted) {
  std::vector<FoundShape> shapes;
  for (const Wanted& one : wanted)
    if (const std::optional<std::string> name = one.name_in(file, entry))
      shapes.push_back({one.names.front(), one.shape, file.find(*name)->shape});
  StoredLayout layout = layout_shown(layouts_of(model_), shapes);
  if (!layout.name.empty()) notes_.push_back(layout_note("'" + entry.file + "'", layout));
  return layout;
}

void WeightsFiles::take(const InitFile& entry, const std::vector<Wanted>& wanted) {
  TensorFiles& file = files_.emplace_back(entry.file, entry.converted);
  const std::string warning = warning_of_other_ids(entry.file, file.meaning_of_ids(), model_);
  if (!warning.empty()) warnings_.push_back(warning);
  std::set<std::string> known;
  for (const Wanted& one : wanted)
    for (std::string& name : one.names_in(entry)) known.insert(std::move(name));
  file.unwrap(known);
  const auto& tensors = file.tensors();
  const auto is_from = [&](const auto& tensor) { return tensor.first.starts_with(entry.from); };
  if (!entry.from.empty() && std::none_of(tensors.begin(), tensors.end(), is_from))
    ddh::fail(DDH_NOT_FOUND, "no tensor of '", entry.file, "' has a name that begins with '", entry.from,
              "'; correct \"from\" in train.init_from");
  if (std::none_of(wanted.begin(), wanted.end(), [&](const Wanted& one) { return !one.names_in(entry).empty(); }))
    ddh::fail(DDH_NOT_FOUND, "no name of the model begins with '", entry.prefix,
              "'; correct \"prefix\" in train.init_from");
  std::set<std::string> used;
  const StoredLayout layout = layout_of(file, entry, wanted);
  for (const Wanted& one : wanted) {
    const std::optional<std::string> name = one.name_in(file, entry);
    if (!name) continue;
    const SafetensorsFile::Tensor& found = *file.find(*name);
    const bool is_transposed =
        layout.transposed.contains(one.names.front()) && is_transposed_shape(found.shape, one.shape);
    if (!is_transposed && found.shape != one.shape) {  // a head of another size
      if (entry.allow_missing.allows(one.names.front()) && entry.allow_surplus.allows(*name)) continue;
      ddh::fail(DDH_INVALID_ARGUMENT, "tensor '", *name, "' in '", entry.file, "' has shape ",
                ddh::shape_text(found.shape), ", the model's is ", ddh::shape_text(one.shape),
                "; set the model's options to those of the file, or name the tensor ",
                "in allow_missing and allow_surplus of train.init_from to draw new values");
    }
    one.check_dtype(found, entry.file);
    for (std::string& every : one.names_in(entry)) {
      const SafetensorsFile::Tensor* other = file.find(every);
      if (other != nullptr && !ddh::same_values(*other, found) && !entry.allow_surplus.allows(every))
        ddh::fail(
            DDH_INVALID_ARGUMENT, "'", entry.file, "' has other values in '", every, "' than in '", *name,
            "', which are one parameter of the model; name the one to ignore in allow_surplus of train.init_from");
      used.insert(std::move(every));
    }
    *one.tensor = &found;
    if (one.is_transposed != nullptr) *one.is_transposed = is_transposed ? 1 : 0;
  }
  std::vector<std::string> surplus, unused;
  for (const auto& [name, tensor] : file.tensors())
    if (!used.contains(name)) (entry.allow_surplus.allows(name) ? unused : surplus).push_back(name);
  const std::string wrapper = surplus.empty() ? "" : wrapper_in(file, wanted);
  if (!wrapper.empty() && entry.from.empty() && entry.prefix.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "'", entry.file, "' has the model's names behind '", wrapper,
              "'; say so: train.init_from=[{\"file\": \"", entry.file, "\", \"from\": \"", wrapper, "\"}]");
  if (!surplus.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "'", entry.file, "' holds ", surplus.size(),
              " tensors that the model lacks: ", list_text(surplus),
              "; give a file of this model, or allow_surplus in train.init_from to ignore them");
  if (!unused.empty())
    notes_.push_back(
        ddh::str("train.init_from ignores ", unused.size(), " tensors of '", entry.file, "': ", list_text(unused)));
}

void WeightsFiles::require_all(const InitFile& entry, const std::vector<Wanted>& wanted) const {
  std::vector<std::string> missing;
  for (const Wanted& one : wanted) {
    const std::string& name = one.names.front();
    const bool is_missing = *one.tensor == nullptr && !one.may_lack && name.starts_with(entry.prefix);
    if (is_missing && !entry.allow_missing.allows(name)) missing.push_back(name);
  }
  if (!missing.empty())
    ddh::fail(DDH_NOT_FOUND, "'", entry.file, "' has no tensor for ", missing.size(),
              " of the model's names: ", list_text(missing),
              "; give a file of this model, or allow_missing in train.init_from to draw them");
}

void WeightsFiles::note_drawn() {
  std::vector<std::string> drawn;
  for (uint32_t p = 0; p < model_.n_params; ++p)
    if (params_[p] == nullptr) drawn.emplace_back(model_.params[p]->name);
  if (!drawn.empty())
    notes_.push_back(ddh::str("train.init_from leaves ", drawn.size(), " of ", model_.n_params,
                              " parameters to be drawn from run.seed: ", list_text(drawn)));
}

void WeightsFiles::set_buffers(Staging& staging) const {
  for (uint32_t b = 0; b < model_.n_buffers; ++b) {
    if (buffers_[b] == nullptr) continue;
    const ddh_buffer_desc& buffer = *model_.buffers[b];
    if (const std::optional<uint64_t> at = first_unusable(buffer, buffers_[b]->data))
      fail_nonfinite("buffer", buffer.name, *at);
    set_buffer_values(buffer, buffers_[b]->data, staging);
  }
}

bool WeightsFiles::read_range(int32_t param, uint64_t offset, uint64_t numel, float* dst) const {
  const SafetensorsFile::Tensor* tensor = params_[static_cast<size_t>(param)];
  if (tensor == nullptr) return false;
  if (is_transposed_[static_cast<size_t>(param)] != 0) {
    read_transposed(*tensor, offset, numel, dst);
    return true;
  }
  const auto* from = static_cast<const char*>(tensor->data) + offset * ddh_dtype_bytes(tensor->dtype);
  if (tensor->dtype == DDH_F32) {
    std::memcpy(dst, from, numel * sizeof(float));
    return true;
  }
  // A file may place 16-bit values at odd addresses.
  std::array<uint16_t, 4096> piece{};
  for (uint64_t done = 0; done < numel; done += piece.size()) {
    const uint64_t n = std::min<uint64_t>(piece.size(), numel - done);
    std::memcpy(piece.data(), from + done * sizeof(uint16_t), n * sizeof(uint16_t));
    kernels::cast(dst + done, DDH_F32, piece.data(), tensor->dtype, n);
  }
  return true;
}

ParamInit::ParamInit(const ddh_model_desc& model, uint64_t seed, const std::vector<InitFile>& files)
    : model_(model), seed_(seed), files_(model, files) {
  for (uint32_t p = 0; p < model.n_params; ++p)
    if (model.params[p]->init_kind == DDH_INIT_TRUNC_NORMAL) check_truncated(*model.params[p]);
}

void ParamInit::init_range(int32_t index, uint64_t offset, uint64_t numel, float* dst) const {
  if (index < 0 || static_cast<uint32_t>(index) >= model_.n_params) {
    ddh::fail(DDH_OUT_OF_RANGE, "parameter ", index, " of ", model_.n_params);
  }
  const ddh_param_desc& param = *model_.params[index];
  if (offset > param.numel || numel > param.numel - offset) {
    ddh::fail(DDH_OUT_OF_RANGE, "elements ", offset, " to ", offset + numel, " of parameter '", param.name,
              "', which has ", param.numel);
  }
  if (!files_.read_range(index, offset, numel, dst)) return draw(param, offset, numel, dst);
  if (const std::optional<uint64_t> at = first_nonfinite(dst, numel))
    fail_nonfinite("parameter", param.name, offset + *at);
}

void ParamInit::draw(const ddh_param_desc& param, uint64_t offset, uint64_t numel, float* dst) const {
  const ddh::CounterRng rng(seed_, param.name);
  switch (param.init_kind) {
    case DDH_INIT_ZERO:
      std::fill_n(dst, numel, 0.0F);
      return;
    case DDH_INIT_CONSTANT:
      std::fill_n(dst, numel, static_cast<float>(param.init_a));
      return;
    case DDH_INIT_UNIFORM:
      for (uint64_t i = 0; i < numel; ++i) {
        dst[i] = static_cast<float>(param.init_a + (param.init_b - param.init_a) * rng.uniform(offset + i));
      }
      return;
    case DDH_INIT_NORMAL:
      for (uint64_t at = offset / 2 * 2; at < offset + numel; at += 2) {
        const auto [first, second] = rng.normal_pair(at / 2);
        const auto value = [&](float normal) {
          return static_cast<float>(param.init_a) + static_cast<float>(param.init_b) * normal;
        };
        if (at >= offset) dst[at - offset] = value(first);
        if (at + 1 < offset + numel) dst[at + 1 - offset] = value(second);
      }
      return;
    case DDH_INIT_TRUNC_NORMAL:
      for (uint64_t i = 0; i < numel; ++i) dst[i] = truncated_normal(rng, param, offset + i);
      return;
    default:
      ddh::fail(DDH_UNIMPLEMENTED, "parameter '", param.name, "' has init kind ", param.init_kind,
                ", unknown to this host");
  }
}

}  // namespace ddhost
