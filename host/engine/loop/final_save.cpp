// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/final_save.hpp"

#include <spdlog/spdlog.h>

#include "engine/weights/save.hpp"
#include "engine/weights/together.hpp"

namespace ddhost {
namespace {

using Place = FinalWeights::Place;

// Room for two paths.
using LongText = std::array<char, 12288>;

// What rank 0 has done, on every rank.
std::string from_first_rank(const Comm& comm, const std::string& text, const char* label) {
  LongText mine{};
  std::snprintf(mine.data(), mine.size(), "%s", text.c_str());
  std::vector<LongText> all(static_cast<size_t>(comm.world_size()));
  comm.all_gather_bytes(mine.data(), all.data(), mine.size(), label);
  return all.front().data();
}

}  // namespace

void reserve_final_weights(const FinalWeights& file, const ddh_model_desc& model, const Comm& comm) {
  together(comm, "room for the final weights", [&] {
    if (comm.rank() == 0) file.data(Place::target).reserve(weights_file_bytes(model));
  });
}

FinalSave save_final_weights(const FinalWeights& file, const StateSource& source, const RankServices& services,
                             const std::string& nonfinite_reason) {
  const Comm& comm = *services.comm;
  const auto write_to = [&](Place place) {
    Exported done = export_params(file.data(place), source, comm, *services.staging, nonfinite_reason);
    for (const std::string& warning : done.warnings) services.log->warn("{}", warning);
    return done.disk_failure;
  };
  Place place = Place::target;
  const std::string failure = write_to(place);
  if (!failure.empty()) {
    place = Place::run_dir;
    together(comm, "room for the final weights", [&] {
      if (comm.rank() != 0) return;
      file.data(Place::target).clear();
      file.data(place).reserve(weights_file_bytes(source.model));
    });
    const std::string again = write_to(place);
    if (!again.empty()) ddh::fail(DDH_DATA_LOSS, "the weights are lost: ", failure, "; ", again);
  }
  FinalWeights::Named named;
  together(comm, "name the final weights", [&] {
    if (comm.rank() == 0) named = file.publish(place);
  });
  const std::string problem = failure.empty() ? named.problem : failure;
  const std::string sentence =
      problem.empty() ? "" : ddh::str(problem, "; the weights are in '", named.path.string(), "'");
  return {named.path.string(), from_first_rank(comm, sentence, "where the final weights are")};
}

}  // namespace ddhost
