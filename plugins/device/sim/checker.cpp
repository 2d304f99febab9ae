// SPDX-License-Identifier: Apache-2.0
#include "checker.hpp"

#include <algorithm>

#include "ddh/sdk/plugin.hpp"

namespace sim {
namespace {

bool is_known(const OperationPtr& operation, const VectorClock& now) {
  return operation == nullptr || now.of(operation->actor) >= operation->number;
}

}  // namespace

void VectorClock::set(size_t actor, uint64_t count) {
  if (actor >= counts_.size()) counts_.resize(actor + 1);
  counts_[actor] = count;
}

void VectorClock::join(const VectorClock& other) {
  counts_.resize(std::max(counts_.size(), other.counts_.size()));
  for (size_t i = 0; i < other.counts_.size(); ++i) counts_[i] = std::max(counts_[i], other.counts_[i]);
}

std::string text_of(const Operation& operation) {
  return ddh::str("'", operation.name, "' (operation ", operation.number, " of stream '", operation.stream, "')");
}

Checker::Cells::const_iterator Checker::first_at(const char* begin) const {
  auto at = cells_.upper_bound(begin);
  if (at != cells_.begin() && std::prev(at)->second.end > begin) --at;
  return at;
}

Checker::Conflict Checker::find_conflict(const ddh_access& access, size_t actor, const VectorClock& now) const {
  const char* const begin = static_cast<const char*>(access.data);
  const char* const end = begin + access.bytes;
  const bool writes = (access.mode & DDH_ACCESS_WRITE) != 0;
  const auto apart = [&](const OperationPtr& earlier) {
    return earlier != nullptr && earlier->actor != actor && !is_known(earlier, now);
  };
  for (auto at = first_at(begin); at != cells_.end() && at->first < end; ++at) {
    const char* const place = std::max(begin, at->first);
    if (apart(at->second.writer)) return {at->second.writer, true, writes, place};
    if (!writes) continue;
    for (const OperationPtr& reader : at->second.readers) {
      if (apart(reader)) return {reader, false, true, place};
    }
  }
  return {};
}

void Checker::split(const char* place) {
  const auto found = first_at(place);
  if (found == cells_.end() || found->first >= place) return;
  Cell& before = cells_.at(found->first);
  Cell behind = before;
  before.end = place;
  cells_.emplace(place, std::move(behind));
}

void Checker::note(const ddh_access& access, const OperationPtr& operation) {
  if (access.bytes == 0) return;
  const char* const begin = static_cast<const char*>(access.data);
  const char* const end = begin + access.bytes;
  split(begin);
  split(end);
  if ((access.mode & DDH_ACCESS_WRITE) != 0) {
    cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(end));
    cells_.emplace(begin, Cell{end, operation, {}});
    return;
  }
  const char* covered = begin;
  for (auto at = cells_.lower_bound(begin); at != cells_.end() && at->first < end; ++at) {
    if (at->first > covered) cells_.emplace(covered, Cell{at->first, nullptr, {operation}});
    std::vector<OperationPtr>& readers = at->second.readers;
    const auto mine = std::find_if(readers.begin(), readers.end(),
                                   [&](const OperationPtr& r) { return r->actor == operation->actor; });
    if (mine == readers.end())
      readers.push_back(operation);
    else
      *mine = operation;
    covered = at->second.end;
  }
  if (covered < end) cells_.emplace(covered, Cell{end, nullptr, {operation}});
}

OperationPtr Checker::unfinished(const char* begin, uint64_t bytes, const VectorClock& now) const {
  for (auto at = first_at(begin); at != cells_.end() && at->first < begin + bytes; ++at) {
    if (!is_known(at->second.writer, now)) return at->second.writer;
    for (const OperationPtr& reader : at->second.readers) {
      if (!is_known(reader, now)) return reader;
    }
  }
  return nullptr;
}

void Checker::forget(const char* begin, uint64_t bytes) {
  split(begin);
  split(begin + bytes);
  cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(begin + bytes));
}

void Checker::forget_known(const VectorClock& now) {
  std::erase_if(cells_, [&](const auto& entry) {
    const Cell& cell = entry.second;
    const auto known = [&](const OperationPtr& r) { return is_known(r, now); };
    return is_known(cell.writer, now) && std::all_of(cell.readers.begin(), cell.readers.end(), known);
  });
}

}  // namespace sim
