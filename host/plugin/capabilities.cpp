// SPDX-License-Identifier: Apache-2.0
#include "plugin/capabilities.hpp"

#include <array>

#include "ddh/ddh.h"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

struct CapName {
  int32_t kind;  // 0: every kind
  uint64_t bit;
  const char* text;
};
constexpr std::array<CapName, 22> kCaps = {{
    {0, DDH_CAP_IN_PROCESS, "several ranks in one process"},
    {0, DDH_CAP_STREAM_ORDERED, "accesses device memory only on streams"},
    {0, DDH_CAP_LOSSY, "its numbers differ on purpose"},
    {0, DDH_CAP_INEXACT_RESUME, "a resumed run has other numbers"},
    {DDH_KIND_COMM, DDH_CAP_RANKS_ARE_THREADS, "ranks are threads"},
    {DDH_KIND_COMM, DDH_CAP_SINGLE_HOST, "one machine only"},
    {DDH_KIND_COMM, DDH_CAP_DEVICE_BUFFERS, "memory of the device only"},
    {DDH_KIND_STRATEGY, DDH_CAP_SHARDS_OPTIM, "shards optimizer state"},
    {DDH_KIND_STRATEGY, DDH_CAP_SHARDS_GRAD, "shards gradients"},
    {DDH_KIND_STRATEGY, DDH_CAP_SHARDS_PARAM, "shards parameters"},
    {DDH_KIND_STRATEGY, DDH_CAP_OFFLOADS, "offloads"},
    {DDH_KIND_STRATEGY, DDH_CAP_DRY_ATTACH, "can be planned without ranks"},
    {DDH_KIND_MODEL, DDH_CAP_COMPUTE_BF16, "computes in bf16"},
    {DDH_KIND_MODEL, DDH_CAP_COMPUTE_F16, "computes in fp16"},
    {DDH_KIND_MODEL, DDH_CAP_RECOMPUTE, "recomputes activations"},
    {DDH_KIND_MODEL, DDH_CAP_EMPTY_BATCH, "takes empty batches"},
    {DDH_KIND_OPTIMIZER, DDH_CAP_CLIP_VALUE, "clips by value"},
    {DDH_KIND_OPTIMIZER, DDH_CAP_KERNELS, "has kernels for GPUs"},
    {DDH_KIND_OPTIMIZER, DDH_CAP_FOLLOWS, "follows another optimizer"},
    {DDH_KIND_DEVICE, DDH_CAP_HOST_MEMORY, "its memory is the host's"},
    {DDH_KIND_DEVICE, DDH_CAP_HOST_REACHABLE, "the host reaches its memory"},
    {DDH_KIND_SCHEDULE, DDH_CAP_READS_LOSS, "reads losses"},
}};

struct FeatureName {
  uint64_t bit;
  const char* text;
};
constexpr std::array<FeatureName, 4> kFeatures = {{
    {DDH_FEATURE_POSITIONS, "positions without a backward pass, or with the gradient of the input alone"},
    {DDH_FEATURE_UPDATES, "update programs"},
    {DDH_FEATURE_PARAM_DTYPES, "parameters with a compute dtype of their own"},
    {DDH_FEATURE_OPTIMIZERS, "several optimizers"},
}};

void append(std::string& list, const char* text) { list += (list.empty() ? "" : ", ") + std::string(text); }

}  // namespace

uint64_t known_caps(int32_t kind) {
  uint64_t known = ~(DDH_CAP_VENDOR_FIRST - 1);
  for (const CapName& cap : kCaps)
    if (cap.kind == 0 || cap.kind == kind) known |= cap.bit;
  return known;
}

std::string caps_text(int32_t kind, uint64_t caps) {
  std::string text;
  for (const CapName& cap : kCaps)
    if ((cap.kind == 0 || cap.kind == kind) && (caps & cap.bit) != 0) append(text, cap.text);
  if (caps >= DDH_CAP_VENDOR_FIRST) append(text, "some that its vendor defines");
  return text.empty() ? "none" : text;
}

std::string features_text(uint64_t features) {
  std::string text;
  for (const FeatureName& feature : kFeatures)
    if ((features & feature.bit) != 0) append(text, feature.text);
  if ((features & ~kKnownFeatures) != 0) append(text, "some that this host does not know");
  return text.empty() ? "none" : text;
}

void check_features(const Plugin& user, const Plugin& strategy) {
  const uint64_t missing = user.desc->uses & ~strategy.desc->understands;
  if (missing == 0) return;
  ddh::fail(DDH_FAILED_PRECONDITION, kind_name(user.desc->kind), " '", user.id(), "' uses ", features_text(missing),
            ", which strategy '", strategy.id(),
            "' does not support, so results would be wrong; choose another strategy, or a newer version of '",
            strategy.file.string(), "'");
}

void check_feature_ids(const Plugin& user, const Plugin& other) {
  const auto understands = [&](std::string_view id) {
    for (const char* const* at = other.desc->understands_ids; at != nullptr && *at != nullptr; ++at)
      if (*at == id) return true;
    return false;
  };
  for (const char* const* id = user.desc->uses_ids; id != nullptr && *id != nullptr; ++id)
    if (!understands(*id))
      ddh::fail(DDH_FAILED_PRECONDITION, kind_name(user.desc->kind), " '", user.id(), "' uses '", *id, "', which ",
                kind_name(other.desc->kind), " '", other.id(),
                "' does not understand, so results would be wrong; choose another ", kind_name(other.desc->kind),
                ", or leave '", user.id(), "' out");
}

bool is_draft(std::string_view interface_id) { return interface_id.ends_with("/0"); }

std::string interface_of(int32_t kind) {
  switch (kind) {
#define DDH_KIND_CASE_(WORD, KIND, IFACE) \
  case KIND:                              \
    return IFACE;
    DDH_KINDS(DDH_KIND_CASE_)
#undef DDH_KIND_CASE_
    default:
      return "";
  }
}

}  // namespace ddhost
