// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/meaning_of_ids.hpp"

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

std::string meaning_of_ids(const ddh_model_desc& model) {
  return model.meaning_of_ids == nullptr ? "" : model.meaning_of_ids;
}

std::map<std::string, std::string> weights_metadata(const std::string& meaning) {
  std::map<std::string, std::string> out = {{"format", "pt"}};
  if (!meaning.empty()) out[kMeaningOfIds] = meaning;
  return out;
}

std::string warning_of_other_ids(const std::string& file, const std::string& stored, const ddh_model_desc& model) {
  const std::string mine = meaning_of_ids(model);
  if (stored.empty() || mine.empty() || stored == mine) return "";
  return ddh::str(
      "'", file, "' was trained on data whose ids stand for ", plain_text(stored, kShownValue),
      ", but the ids of this run's data stand for ", plain_text(mine, kShownValue),
      ", so its outputs are wrong until it is trained on these data; give data with the same ids, as those ",
      "of its training");
}

}  // namespace ddhost
