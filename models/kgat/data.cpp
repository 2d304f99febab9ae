// SPDX-License-Identifier: Apache-2.0
//
// Data of a folder, data that is made up, and the validation cut.
#include "data.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "ddh/sdk/files/find_data.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"

namespace kgat {

namespace fs = std::filesystem;

namespace {

constexpr int32_t kTastes = 4;  // of made-up users and items

KgatData read_folder(const ddh::Host& host, const std::string& folder) {
  if (!fs::is_directory(folder))
    ddh::fail(DDH_NOT_FOUND, "data.path '", folder,
              "' is no folder; give one with train.txt, test.txt and kg_final.txt in the format of KGAT");
  return read_data(host, folder, host.flag("model.skip_bad_lines"));
}

}  // namespace

KgatData open_data(const ddh::Host& host, const std::string& dataset) {
  if (const std::string path = host.text("data.path"); !path.empty()) return read_folder(host, path);
  if (dataset != "made_up") {
    if (const std::string folder = ddh::find_data(host, dataset); !folder.empty()) return read_folder(host, folder);
  }
  host.log(DDH_LOG_INFO, "no data.path given",
           dataset == "made_up" ? "" : ddh::str(" and no folder ", dataset, " found"), ": training on a made-up graph");
  return make_up_data();
}

KgatData make_up_data() {
  constexpr int32_t kUsers = 60, kItems = 48, kEntities = 72, kRelations = 3;
  KgatData data;
  data.n_items = kItems, data.n_entities = kEntities, data.n_relations = kRelations;
  const ddh::CounterRng rng(0, "kgat.made_up");
  uint64_t draw = 0;
  for (int32_t u = 0; u < kUsers; ++u) {
    std::vector<int32_t> train, test;
    for (int32_t i = 0; i < kItems; ++i) {
      const double share = i % kTastes == u % kTastes ? 0.6 : 0.05;
      const double chance = rng.uniform(draw++), part = rng.uniform(draw++);
      if (i == u % kItems || chance < share) (i != u % kItems && part < 0.2 ? test : train).push_back(i);
    }
    data.train.push_back(std::move(train));
    data.test.push_back(std::move(test));
  }
  for (int32_t i = 0; i < kItems; ++i) {
    for (int32_t r = 0; r < kRelations; ++r) {
      // Seven of eight neighbours are of the item's taste.
      const uint64_t bits = rng.bits(draw++);
      const auto group = static_cast<int32_t>(bits % ((kEntities - kItems) / kTastes));
      const auto other = static_cast<int32_t>(bits >> 32 & 31);
      data.kg.push_back({i, r, kItems + group * kTastes + (other < kTastes ? other : i % kTastes)});
    }
  }
  std::sort(data.kg.begin(), data.kg.end());
  return data;
}

void hold_out(KgatData& data, double part) {
  const ddh::CounterRng rng(0, "kgat.validation");
  for (size_t u = 0; u < data.train.size(); ++u) {
    std::vector<int32_t>& items = data.train[u];
    data.test[u].clear();
    if (items.size() < 2) continue;
    const auto wanted = static_cast<size_t>(std::lround(part * static_cast<double>(items.size())));
    const size_t n = std::clamp<size_t>(wanted, 1, items.size() - 1);
    // Those with the smallest of random numbers.
    std::vector<std::pair<uint64_t, int32_t>> order;
    for (const int32_t item : items)
      order.emplace_back(rng.bits(static_cast<uint64_t>(u) << 32 | static_cast<uint64_t>(item)), item);
    std::sort(order.begin(), order.end());
    items.clear();
    for (size_t i = 0; i < order.size(); ++i) (i < n ? data.test[u] : items).push_back(order[i].second);
    std::sort(items.begin(), items.end());
    std::sort(data.test[u].begin(), data.test[u].end());
  }
}

}  // namespace kgat
