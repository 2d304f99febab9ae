// SPDX-License-Identifier: Apache-2.0
//
// The layout of control memory, and calls in words.
#include "control.hpp"

#include "ddh/sdk/plugin.hpp"

namespace same_host {
namespace {

constexpr uint64_t up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

const char* name_of(CallKind kind) {
  switch (kind) {
    case CallKind::kJoin: return "join";
    case CallKind::kBarrier: return "barrier";
    case CallKind::kAllReduce: return "all_reduce";
    case CallKind::kReduceScatter: return "reduce_scatter";
    case CallKind::kAllGather: return "all_gather";
    case CallKind::kBroadcast: return "broadcast";
    case CallKind::kAllToAll: return "all_to_all";
    case CallKind::kRegionCreate: return "region_create";
    case CallKind::kMarksCreate: return "marks_create";
    case CallKind::kFinalize: return "finalize";
    case CallKind::kSend: return "send";
  }
  return "an unknown call";
}

const char* name_of_dtype(int32_t dtype) {
  constexpr const char* kNames[] = {"?", "F32", "BF16", "F16", "F64", "I32", "I64", "U8", "U16"};
  return dtype >= DDH_F32 && dtype <= DDH_U16 ? kNames[dtype] : kNames[0];
}

const char* name_of_op(int32_t op) { return op == DDH_SUM ? " SUM" : op == DDH_MAX ? " MAX" : " MIN"; }

}  // namespace

Layout::Layout(uint32_t n, uint32_t marks, uint64_t staging_bytes)
    : marks_(marks), staging_(up(staging_bytes, 64)), message_(up(staging_bytes / 4, 64)) {
  // A slice of a result is cut on 64 elements of at most 8 bytes.
  half_ = kHeaderBytes + staging_ + up(staging_ / n + 1024, 64);
  marks_at_ = seat(n);
  staging_at_ = mark(n, 0);
  message_at_ = header(n, 0);
  total_ = message_header(n, 0);
}

std::string describe(const Signature& s, const char* label) {
  std::string text = name_of(s.kind);
  const bool reduces = s.kind == CallKind::kAllReduce || s.kind == CallKind::kReduceScatter;
  if (reduces) text += name_of_op(s.op);
  if (s.kind == CallKind::kRegionCreate) {
    text += ddh::str(" of ", s.count, " bytes");
  } else if (s.kind == CallKind::kMarksCreate) {
    text += ddh::str(" of ", s.count);
  } else if (s.dtype != 0) {
    text += s.counts_hash != 0 ? ddh::str(" of uneven pieces (", s.count, " in all) ") : ddh::str(" of ", s.count, " ");
    text += name_of_dtype(s.dtype);
    if (s.kind == CallKind::kBroadcast) text += ddh::str(" from rank ", s.root);
  }
  if (label != nullptr && label[0] != '\0') text += ddh::str(" ('", label, "')");
  return text;
}

}  // namespace same_host
