// SPDX-License-Identifier: Apache-2.0
//
// The tensors of an OffloadedState: made on their tiers or in memory, and fetched.
#include <algorithm>

#include "offloaded_parts.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

OffloadedState::OffloadedState(const Host& host, const ModelLayout& layout, int32_t rank, OffloadSettings settings)
    : host_(host),
      plan_(host, layout, rank, std::move(settings)),
      held_(plan_.spaces.size()),
      frames_(plan_.frames, static_cast<uint32_t>(plan_.arrays_of_frame()), plan_.tile_bytes, plan_.settings.overlap) {}

OffloadedState::~OffloadedState() = default;

uint64_t OffloadedState::value_bytes() const { return plan_.value_bytes_on(Place::cpu); }

uint64_t OffloadedState::upload_bytes(size_t space) const {
  const bool uploads = !plan_.settings.host_device && plan_.spaces[space].place == Place::nvme;
  return uploads ? UploadBuffers::bytes_each(plan_.longest_value_bytes()) : 0;
}

uint64_t OffloadedState::state_bytes() const {
  return frames_.bytes() + plan_.state_bytes_on(Place::cpu) + plan_.resident_bytes();
}

uint64_t OffloadedState::pinned_state_bytes() const {
  return (uses(Place::nvme) ? frames_.bytes() : 0) + plan_.state_bytes_on(Place::cpu);
}

uint64_t OffloadedState::file_bytes() const {
  return plan_.value_bytes_on(Place::nvme) + plan_.state_bytes_on(Place::nvme);
}

Tier* OffloadedState::tier_of(Place place) {
  return place == Place::nvme ? static_cast<Tier*>(files_.get()) : static_cast<Tier*>(memory_.get());
}

bool OffloadedState::uses(Place place) const {
  return plan_.settings.state == place || std::any_of(plan_.spaces.begin(), plan_.spaces.end(),
                                                      [&](const TilePlan::Space& s) { return s.place == place; });
}

// The largest number of transfers that a file engine has in flight.
static constexpr uint32_t kTransfersUnderWay = 64;

void OffloadedState::add_tensors() {
  const OffloadSettings& how = plan_.settings;
  if (uses(Place::nvme)) {
    files_ = std::make_unique<FileTier>(
        host_, FileTierSettings{
                   how.folder, how.folder_option, plan_.tile_bytes, kTransfersUnderWay, plan_.rank == 0,
                   [this](int fd, uint32_t depth) { return make_io_engine(host_, plan_.settings.io, fd, depth); }});
  }
  if (uses(Place::cpu)) memory_ = std::make_unique<MemoryTier>(host_, plan_.tile_bytes);
  for (size_t i = 0; i < held_.size(); ++i) {
    const TilePlan::Space& s = plan_.spaces[i];
    Held& held = held_[i];
    const std::string& name = plan_.layout.spaces[i].name;
    const uint64_t value_bytes = ddh_dtype_bytes(s.dtype);
    if (plan_.values_away())
      held.values = tier_of(s.place)->add_cut(str("parameters of ", name), DDH_TAG_PARAM, s.numel * value_bytes,
                                              s.tile_numel * value_bytes);
    for (const int32_t array : s.arrays) {
      const std::string what =
          array == TilePlan::kMaster ? str("master of ", name) : str("optimizer slot ", array, " of ", name);
      if (s.away_numel > 0)
        held.tensors.push_back(
            tier_of(how.state)->add_cut(what, DDH_TAG_OPTIM, plan_.away_bytes(i, array), plan_.tile_stride(i, array)));
      held.resident.emplace_back();
      if (s.away_numel < s.numel)
        held.resident.back() =
            Buffer(host_, DDH_TAG_OPTIM, plan_.array_bytes(i, array, s.away_numel, s.numel - s.away_numel), what);
    }
  }
}

void OffloadedState::materialize() {
  add_tensors();
  frames_.materialize(host_, DDH_TAG_OPTIM, files_ ? DDH_MEM_PINNED : DDH_MEM_DEVICE);
  if (memory_) memory_->reserve();
  if (memory_ && files_) memory_->pinned_buffers(frames_.registrable());
  if (!plan_.settings.host_device && plan_.settings.values == Place::nvme)
    uploads_ = std::make_unique<UploadBuffers>(host_, plan_.longest_value_bytes());
  if (!files_) return;
  if (files_->file_bytes() != file_bytes())
    fail(DDH_INTERNAL, "the file takes ", files_->file_bytes(), " bytes, but ", file_bytes(), " were planned");
  files_->reserve();
  files_->register_buffers(frames_.registrable());
  host_.log(DDH_LOG_INFO, file_bytes(), " bytes of states are in '", plan_.settings.folder, "', by ", files_->io_name(),
            files_->is_direct() ? ", O_DIRECT" : "", ", in tiles of ", plan_.tile_bytes, " bytes, ", frames_.frames(),
            " at a time");
}

void OffloadedState::free_unused() {
  for (size_t i = 0; i < held_.size(); ++i) {
    TilePlan::Space& s = plan_.spaces[i];
    Held& held = held_[i];
    for (size_t k = s.arrays.size(); k-- > 0;) {
      const int32_t slot = s.arrays[k];
      if (slot == TilePlan::kMaster || plan_.slots[static_cast<size_t>(slot)].is_used(plan_.layout.spaces[i])) continue;
      const auto place = static_cast<std::ptrdiff_t>(k);
      if (s.away_numel > 0) {
        tier_of(plan_.settings.state)->free(held.tensors[k]);
        held.tensors.erase(held.tensors.begin() + place);
      }
      held.resident.erase(held.resident.begin() + place);
      s.arrays.erase(s.arrays.begin() + place);
    }
  }
}

void OffloadedState::begin_fetch(size_t space, void* dst) {
  const TilePlan::Space& s = plan_.spaces[space];
  Held& held = held_[space];
  if (upload_bytes(space) > 0) held.fetched_to = std::exchange(dst, held.upload = uploads_->take());
  for (uint64_t first = 0; first < s.numel; first += s.tile_numel) {
    Tier* const tier = tier_of(s.place);
    held.fetches.push_back(tier->begin_read(held.values, first / s.tile_numel, element_at(dst, s.dtype, first)));
  }
}

void OffloadedState::finish_fetch(size_t space) {
  const TilePlan::Space& s = plan_.spaces[space];
  Held& held = held_[space];
  for (const Tier::Handle h : std::exchange(held.fetches, {})) tier_of(s.place)->wait(h);
  if (held.upload == nullptr) return;
  uploads_->upload(std::exchange(held.upload, nullptr), held.fetched_to, s.numel * ddh_dtype_bytes(s.dtype));
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
