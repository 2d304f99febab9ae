// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/saved_order.hpp"

#include <algorithm>

#include "ddh/sdk/plugin.hpp"
#include "engine/samples/sample_order.hpp"

namespace ddhost {

std::pair<std::string, std::string> sample_order_entry() { return {"sample_order", std::to_string(kSampleOrderWay)}; }

std::string programs_in_another_order(const Manifest& manifest, bool from_file) {
  const auto now = sample_order_entry();
  const auto saved =
      std::find_if(manifest.host.begin(), manifest.host.end(), [&](const auto& e) { return e.first == now.first; });
  if (from_file || (saved != manifest.host.end() && saved->second == now.second)) return "";
  // Without an entry it is way 1, which has other orders for small sets only. A single sample has one order.
  const uint64_t largest = saved == manifest.host.end() ? kSmallSet : UINT64_MAX;
  std::string out;
  for (const ProgramProgress& program : manifest.progress.programs)
    if (program.epoch_samples > 1 && program.epoch_samples <= largest)
      out += ddh::str(out.empty() ? "" : ", ", "'", program.name, "' (", program.epoch_samples, " samples)");
  return out;
}

}  // namespace ddhost
