// SPDX-License-Identifier: Apache-2.0
//
// plugin/capabilities.hpp: the names of the ABI's capability bits, features and interfaces, and which of them this host
// knows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plugin/library.hpp"

namespace ddhost {

// The bits of ddh_desc.caps that this host knows for a kind, including those of vendors.
uint64_t known_caps(int32_t kind);
// Bits of ddh_desc.uses that this host knows.
constexpr uint64_t kKnownFeatures =
    DDH_FEATURE_POSITIONS | DDH_FEATURE_UPDATES | DDH_FEATURE_PARAM_DTYPES | DDH_FEATURE_OPTIMIZERS;
// "shards gradients, offloads"; "none".
std::string caps_text(int32_t kind, uint64_t caps);
// "update programs, several optimizers"; "none".
std::string features_text(uint64_t features);

// Refuses a model or an optimizer that uses a feature that the strategy does not support, because the results would
// be wrong.
void check_features(const Plugin& user, const Plugin& strategy);

// The same of the features that others define (ddh_desc.uses_ids). `other`: the strategy or the transport of the run.
void check_feature_ids(const Plugin& user, const Plugin& other);

// Revision 0: the interface may still change after 1.0.
bool is_draft(std::string_view interface_id);
// The interface that a plugin of the kind offers: "ddh.strategy/1"; "" for an unknown kind.
std::string interface_of(int32_t kind);

}  // namespace ddhost
