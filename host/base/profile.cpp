// SPDX-License-Identifier: Apache-2.0
#include "base/profile.hpp"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "ddh/ddh.h"

namespace ddhost {
namespace {

int64_t minor_faults_of_this_thread() {
  rusage usage{};
  return ::getrusage(RUSAGE_THREAD, &usage) == 0 ? static_cast<int64_t>(usage.ru_minflt) : 0;
}

StepPart part_of(size_t kind, const SpanTopic& topic) {
  if (topic.is_unit)
    return topic.unit.phase == DDH_PHASE_BACKWARD    ? StepPart::backward
           : topic.unit.phase == DDH_PHASE_RECOMPUTE ? StepPart::recompute
                                                     : StepPart::forward;
  const std::string_view operation = topic.operation == nullptr ? "" : topic.operation;
  switch (kind) {
    case DDH_SPAN_DATA:
      return StepPart::data;
    case DDH_SPAN_FORWARD:
      return StepPart::forward;
    case DDH_SPAN_BACKWARD:
      return StepPart::backward;
    case DDH_SPAN_OPTIM:
      return StepPart::optimizer;
    case DDH_SPAN_COMM:
      if (operation == "wait" || operation == "barrier") return StepPart::wait;
      return operation.find("reduce") != std::string_view::npos ? StepPart::reduce : StepPart::gather;
    default:
      return StepPart::host;
  }
}

}  // namespace

const char* Profile::kept(const char* text) { return text == nullptr ? nullptr : texts.emplace(text).first->c_str(); }

ProfileRecorder::Thread& ProfileRecorder::this_thread() {
  const auto [at, is_new] =
      threads_.try_emplace(std::this_thread::get_id(), Thread{static_cast<uint32_t>(threads_.size()), 0});
  if (is_new) {
    at->second.faults = minor_faults_of_this_thread();
    std::array<char, 32> name{};
    static_cast<void>(::pthread_getname_np(::pthread_self(), name.data(), name.size()));
    profile_.threads.emplace_back(name.data());
  }
  return at->second;
}

void ProfileRecorder::charge_faults(const OpenSpan* span) {
  Thread& thread = this_thread();
  const int64_t now = minor_faults_of_this_thread();
  profile_.faults[span == nullptr ? StepPart::host : span->trace.part] +=
      static_cast<uint64_t>(now - std::exchange(thread.faults, now));
}

OpenSpan ProfileRecorder::begin(size_t kind, const SpanTopic& topic, const OpenSpan* outer, Time now) {
  charge_faults(outer);
  OpenSpan out;
  out.trace = {part_of(kind, topic),
               topic.is_unit,
               topic.unit,
               profile_.kept(topic.operation),
               profile_.kept(topic.detail),
               profile_.kept(topic.label),
               -1,
               this_thread().index,
               ns_of(now),
               0};
  out.spent = profile_.find(topic);
  if (out.spent != nullptr && topic.is_call) ++out.spent->calls;
  out.members = topic.members;
  if (out.members != nullptr) out.operation = Profile::operation_name(topic.operation, topic.detail);
  return out;
}

OpenSpan ProfileRecorder::begin_part(StepPart part, const char* name, const char* label, int32_t peer,
                                     const OpenSpan* outer, Spent* spent, Time now) {
  charge_faults(outer);
  OpenSpan out;
  out.trace = {part,       false, {}, profile_.kept(name), nullptr, profile_.kept(label), peer, this_thread().index,
               ns_of(now), 0};
  out.spent = spent;
  return out;
}

void ProfileRecorder::end(OpenSpan& span, Time now) {
  charge_faults(&span);
  span.trace.end_ns = ns_of(now);
  if (span.norm_ms > 0) {  // it took turns with the span: its place is not exact, its length is
    TraceSpan norm = span.trace;
    norm.part = StepPart::norm;
    norm.name = "norm";
    norm.detail = "in turns with the sum";
    norm.begin_ns = std::max(norm.begin_ns, norm.end_ns - static_cast<int64_t>(span.norm_ms * 1e6));
    profile_.spans.push_back(norm);
  }
  profile_.spans.push_back(span.trace);
  if (span.members == nullptr || span.members->size() < 2) return;
  std::string key = span.operation + ";";
  for (const int32_t rank : *span.members) key += " " + std::to_string(rank);
  Collective& collective = profile_.collectives[key];
  collective.part = span.trace.part;
  collective.calls_ms.push_back(span.own_ms);
}

void ProfileRecorder::charge(size_t kind, OpenSpan* span, double ms) {
  profile_.kinds_ms[kind] += ms;
  if (span == nullptr) {
    profile_.parts_ms[StepPart::host] += ms;
    return;
  }
  profile_.parts_ms[span->trace.part] += ms;
  span->own_ms += ms;
  if (span->spent != nullptr) span->spent->ms += ms;
  if (span->trace.part == StepPart::wait && span->trace.peer >= 0) profile_.waited_ms[span->trace.peer] += ms;
}

void ProfileRecorder::share_norm(OpenSpan* span, double ms) {
  if (span == nullptr) return;
  profile_.parts_ms[span->trace.part] -= ms;
  profile_.parts_ms[StepPart::norm] += ms;
  span->own_ms -= ms;
  span->norm_ms += ms;
}

void ProfileRecorder::beside(const char* name, Time from, Time to) {
  TraceSpan span;
  span.part = StepPart::data;
  span.name = profile_.kept(name);
  span.thread = this_thread().index;
  span.begin_ns = std::max(ns_of(from), profile_.begin_ns);
  span.end_ns = ns_of(to);
  profile_.spans.push_back(span);
}

Profile ProfileRecorder::take(Time now) {
  profile_.end_ns = ns_of(now);
  return std::move(profile_);
}

}  // namespace ddhost
