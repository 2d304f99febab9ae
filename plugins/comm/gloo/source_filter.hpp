// SPDX-License-Identifier: Apache-2.0
//
// source_filter.hpp: lets only the hosts of a run reach a listening socket of Gloo, which asks nobody who he is and ends the
// process if it gets garbage. The kernel drops the packets of all others (SO_ATTACH_FILTER, which needs no privilege).
#pragma once

#include <string>
#include <vector>

namespace gloo_links {

// `addresses`: IPv4 or IPv6, as text. Error: the kernel refuses the filter.
void allow_only(int listening_socket, const std::vector<std::string>& addresses);

}  // namespace gloo_links
