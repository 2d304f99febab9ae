// SPDX-License-Identifier: Apache-2.0
//
// The trace of a rank: complete events ("X") for spans and steps, and the names of the process and its threads ("M").
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/durable.hpp"
#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/profile/step_profile.hpp"

namespace ddhost {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, kParts> kCategories = {"forward", "backward",  "recompute", "gather",
                                                         "reduce",  "optimizer", "norm",      "wait",
                                                         "data",    "memory",    "strategy",  "host"};

Json event(const std::string& name, const char* category, int64_t begin_ns, int64_t end_ns, int32_t rank,
           uint32_t thread) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"ts", static_cast<double>(begin_ns) / 1e3},
          {"dur", static_cast<double>(end_ns - begin_ns) / 1e3},
          {"pid", rank},
          {"tid", thread}};
}

Json metadata(const char* what, const std::string& name, int32_t rank, uint32_t thread) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

Json event_of(const TraceSpan& span, const ddh_model_desc& model, int64_t step, int32_t rank) {
  const char* const category = kCategories[static_cast<size_t>(span.part)];
  Json args = {{"step", step}};
  std::string name = span.name != nullptr ? span.name : span.label != nullptr ? span.label : category;
  if (span.is_unit) {
    const ddh_program_desc& program = *model.programs[span.unit.program];
    const char* const unit = model.units[program.units[span.unit.position]]->name;
    name = ddh::str(category, " ", unit);
    args.update({{"unit", unit}, {"program", program.name}, {"position", span.unit.position}});
  }
  if (span.peer >= 0) name = ddh::str("wait for rank ", span.peer);
  if (span.detail != nullptr) name += ddh::str(", ", span.detail);
  if (span.label != nullptr && name != span.label) args["of"] = span.label;
  Json out = event(name, category, span.begin_ns, span.end_ns, rank, span.thread);
  out["args"] = std::move(args);
  return out;
}

}  // namespace

void require_new_trace(const std::filesystem::path& path) {
  std::error_code unused;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, unused)))
    ddh::fail(DDH_ALREADY_EXISTS, "the trace '", path.string(), "' of profile.steps exists already and is not ",
              "overwritten; move it away, or measure other steps (profile.steps= measures none)");
}

std::string write_trace(const StepProfile& profile, const ddh_model_desc& model, int32_t rank) {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  const auto add = [&text](const Json& one) { text += json_line(one) + ",\n"; };
  add(metadata("process_name", ddh::str("rank ", rank), rank, 0));
  for (uint32_t thread = 0; thread < profile.threads().size(); ++thread)
    add(metadata("thread_name", profile.threads()[thread], rank, thread));
  for (const TracedStep& step : profile.traced()) {
    Json whole = event(ddh::str("step ", step.step), "step", step.begin_ns, step.end_ns, rank, 0);
    whole["args"] = {{"step", step.step}};
    add(whole);
    for (const TraceSpan& span : step.spans) add(event_of(span, model, step.step, rank));
  }
  add({{"name", "process_sort_index"}, {"ph", "M"}, {"pid", rank}, {"args", {{"sort_index", rank}}}});
  text.erase(text.size() - 2);  // the last comma
  text += "\n], \"otherData\": " +
          Json({{"measured_steps", profile.count()}, {"traced_steps", profile.traced().size()}}).dump() + "}\n";
  const std::filesystem::path path = profile.trace_path();
  std::error_code ignored;  // writing says why; ranks on other hosts may not have the folder yet
  std::filesystem::create_directories(path.parent_path(), ignored);
  require_new_trace(path);  // a run that is stopped has measured fewer steps than were asked for
  replace_durably(path, text);
  const size_t n_traced = profile.traced().size();
  return ddh::str("  ", path.string(), ", and one of each rank: open them in ui.perfetto.dev",
                  n_traced < static_cast<size_t>(profile.count())
                      ? ddh::str("; this one has the first ", n_traced, " of ", profile.count(), " steps")
                      : "",
                  "\n");
}

}  // namespace ddhost
