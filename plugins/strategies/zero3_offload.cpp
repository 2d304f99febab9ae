// SPDX-License-Identifier: Apache-2.0
//
// zero3_offload: zero3 with the optimizer state, and optionally the parameters, on another tier: pinned memory of the
// host (cpu) or a file on a fast disk (nvme).
//
// Each of N ranks owns      as zero3: 1/N of parameters, gradients and optimizer state
// Bytes on the device       fp32 AdamW: 4 P/N of gradients, 4 P/N of parameters, (1 - r) 8 P/N of optimizer state (r: `ratio`),
//                           the units in flight as in zero3, and the frames: buffer_count * (offloaded arrays) *
//                           buffer_bytes, for each array at most the longest segment; with nvme they are pinned memory.
//                           With offload_param a buffer for each open unit replaces the 4 P/N of parameters, because
//                           shared pages would stay allocated; with nvme and a GPU also a pinned one for each read. For an
//                           optimizer of whole parameters a frame holds this rank's part of a unit.
// Bytes on the tier         r 8 P/N, and with offload_param 4 P/N: with cpu in pinned memory (tags optim and param), with
//                           nvme in one file (no memory)
// Moved per rank and step   between ranks as zero3; between tier and device r 8 P/N read and written in step(). With
//                           offload_param 4 P/N more of each, and 4 P/N read at each gather, twice per micro-batch. In a
//                           low precision r 12 P/N, and 2 P/N of parameters that are only written. With norms of
//                           parameters the state is read and the slots are written once more
// Collectives per step      as zero3; with offload_param each gather is an all_gather, and there is no publish
// Terms: ddh/sdk/data_parallel.hpp. Sources: Ren et al., ZeRO-Offload, ATC 2021; Rajbhandari et al., ZeRO-Infinity, SC 2021.
// The update is never delayed, so the bits equal zero3's.
//
// Differences from zero3: step() processes tiles instead of segments, so one is updated while the next one is read and
// the previous one is written. An offloaded segment is read, beginning with the prefetch, and then all-gathered.
#include <cmath>
#include <functional>
#include <optional>

#include "ddh/sdk/data_parallel.hpp"
#include "ddh/sdk/strategy_options.hpp"
#include "ddh/sdk/tier/fetched_params.hpp"
#include "ddh/sdk/tier/offloaded_state.hpp"
#include "zero3_offload_options.hpp"

namespace {

ddh::Place place_of(const std::string& name) {
  return name == "nvme" ? ddh::Place::nvme : name == "cpu" ? ddh::Place::cpu : ddh::Place::device;
}

// zero3's parameters, or parameters whose segments are on a tier.
class OffloadedParams final : public ddh::PrefetchedParams {
 public:
  // `away`: the storage of the segments; nullptr: on the device.
  OffloadedParams(const ddh::Host& host, const ddh::ModelLayout& layout, const ddh_attach_args& args,
                  const ddh::PrefetchPolicy& policy, ddh::OffloadedState* away)
      : PrefetchedParams(host, layout, args, policy), away_(away) {}

  // nullptr if they are offloaded.
  void* values(size_t space) override { return away_ != nullptr ? nullptr : PrefetchedParams::values(space); }

 protected:
  std::unique_ptr<ddh::ViewSource> make_source() const override {
    if (away_ == nullptr) return nullptr;
    return std::make_unique<ddh::FetchedParams>(host_, layout_, args_.group, args_.rank, *away_);
  }
  uint64_t source_calls(const Gathered& dry) const override {
    return static_cast<ddh::FetchedParams&>(*dry.source).gathers();
  }

 private:
  ddh::OffloadedState* const away_;
};

class Zero3Offload final : public ddh::DataParallel {
 public:
  explicit Zero3Offload(const ddh_create& create) : DataParallel(create), policy_(options) {
    settings_.values = place_of(options.text("offload_param.device"));
    settings_.state = place_of(options.text("offload_optimizer.device"));
    settings_.ratio = options.f64("offload_optimizer.ratio");
    settings_.tile_bytes = ddh::Tier::round_up(static_cast<uint64_t>(options.i64("buffer_bytes")));
    settings_.frames = static_cast<uint32_t>(options.i64("buffer_count"));
    settings_.folder = options.text("nvme_path");
    settings_.folder_option = options.key("nvme_path");
    settings_.io = options.text("io");
    settings_.host_device = host.text("device.plugin") == "cpu";
    params_away_ = settings_.values != ddh::Place::device;
    settings_.overlap = {options.flag("offload_optimizer.pipeline_read"),
                         options.flag("offload_optimizer.pipeline_write")};
    settings_.values_in_memory = static_cast<uint64_t>(options.i64("offload_param.max_in_cpu"));
    refuse_what_waits();
  }
  ~Zero3Offload() override { report(); }
  Zero3Offload(const Zero3Offload&) = delete;
  Zero3Offload& operator=(const Zero3Offload&) = delete;

  void attach(const ddh_attach_args& args) override {
    DataParallel::attach(args);
    if (args.rank == 0) warn_of_idle();
  }

  void plan(ddh_plan& out) override {
    DataParallel::plan(out);
    out.optim_bytes = offloaded_->state_bytes();
    out.file_bytes = offloaded_->file_bytes();
  }

  void materialize() override {
    offloaded_->materialize();
    params().materialize();
    write_windows(kEvery, [&] { offloaded_->init(values_); });
    grads().materialize(host);
  }

  void step_begin(const ddh_step_begin_args&) override {
    if (first_step_begun_) return;
    first_step_begun_ = Clock::now();
    file_traffic_before_ = offloaded_->file_traffic();
  }

  void step() override {
    DataParallel::step();
    count_traffic();
  }

  void trains_later(const uint8_t* trains) override {
    DataParallel::trains_later(trains);
    offloaded_->free_unused();
  }

  std::vector<ddh_state_entry> state() override {
    std::vector<ddh_state_entry> out;
    offloaded_->forget_entries();
    for (size_t s = 0; s < layout().spaces.size(); ++s) offloaded_->append_state_entries(out, s, values_(s));
    return out;
  }
  void state_read(uint32_t entry, uint64_t offset, uint64_t numel, void* dst) override {
    offloaded_->copy_entry(entry, offset, numel, dst, nullptr);
  }
  void state_write(uint32_t entry, uint64_t offset, uint64_t numel, const void* src) override {
    offloaded_->copy_entry(entry, offset, numel, nullptr, src);
  }
  void state_commit() override {
    write_windows(kEvery, [&] { offloaded_->refresh(values_); });
    values_changed();
  }

 private:
  using Clock = std::chrono::steady_clock;

  ddh::Grouping grouping() const override { return policy_.grouping(); }
  std::unique_ptr<ddh::ParamStore> parameters() override {
    offloaded_.emplace(host, layout(), args().rank, settings_);
    return std::make_unique<OffloadedParams>(host, layout(), args(), policy_, params_away_ ? &*offloaded_ : nullptr);
  }
  std::unique_ptr<ddh::GradStore> gradients() override {
    return std::make_unique<ddh::GradRing>(layout(), args(),
                                           ddh::GradRingOptions{.overlap = options.flag("overlap_comm")});
  }
  ddh::OptimPart optimizer_state(const ddh::FlatSpace& space) const override { return segment(space); }

  // The two phases process tiles of all segments.
  void prepare(const ddh_step_block& block) override {
    if (block.skip == 0) offloaded_->prepare(values_, sum_);
  }
  void update(const ddh_step_block& block) override {
    write_windows(sum_, [&] {
      if (block.skip == 0) offloaded_->update(values_, sum_);
    });
  }

  void refuse_what_waits() const {
    for (const std::string section : {"offload_optimizer", "offload_param"})
      if (options.text(section + ".device") != "none" && !options.flag(section + ".pin_memory"))
        ddh::fail(DDH_FAILED_PRECONDITION, options.key(section),
                  ".pin_memory=false: copies from pageable memory can't run during the computation, so ",
                  "offloaded data is always pinned; set it to true");
    if (params_away_ && policy_.grouping().persistent_bytes > 0)
      ddh::fail(DDH_FAILED_PRECONDITION, options.key("persistence_bytes"), "=", policy_.grouping().persistent_bytes,
                " keeps small parameters gathered on the device, but with ", options.key("offload_param.device"), "=",
                options.text("offload_param.device"),
                " no parameters stay there; set the first to 0 or the second to none");
  }

  // Warns about options that have no effect with the chosen devices.
  void warn_of_idle() const {
    const auto warn_if = [&](bool idle, const char* option, const std::string& without) {
      if (idle) host.log(DDH_LOG_WARN, options.key(option), " changes nothing without ", without);
    };
    const bool uses_files = settings_.values == ddh::Place::nvme || settings_.state == ddh::Place::nvme;
    warn_if(settings_.state == ddh::Place::device && settings_.ratio != 1, "offload_optimizer.ratio",
            options.key("offload_optimizer.device") + "=cpu or nvme");
    warn_if(settings_.values != ddh::Place::nvme && settings_.values_in_memory > 0, "offload_param.max_in_cpu",
            options.key("offload_param.device") + "=nvme");
    warn_if(!uses_files && !settings_.folder.empty(), "nvme_path", "a device=nvme");
  }

  // Runs `body` with the windows of the chosen spaces open for writing, if there are windows.
  template <class Chosen, class Body>
  void write_windows(Chosen&& chosen, Body&& body) {
    if (params_away_) return body();
    for (size_t s = 0; s < layout().spaces.size(); ++s)
      if (chosen(s)) params().window(s)->write_begin();
    body();
    for (size_t s = 0; s < layout().spaces.size(); ++s)
      if (chosen(s)) params().window(s)->commit();
  }

  void count_traffic() {
    last_step_ended_ = Clock::now();
    const ddh::Tier::Traffic file = offloaded_->file_traffic(), memory = offloaded_->memory_traffic();
    const auto count = [&](const char* name, uint64_t total, uint64_t& counted) {
      if (host.metrics != nullptr && total > counted) host.metrics->count(host.h, name, total - counted);
      counted = total;
    };
    count("offload.file_read_bytes", file.read_bytes, counted_.file_read);
    count("offload.file_written_bytes", file.written_bytes, counted_.file_written);
    count("offload.memory_read_bytes", memory.read_bytes, counted_.memory_read);
    count("offload.memory_written_bytes", memory.written_bytes, counted_.memory_written);
  }

  // Reports at the end the disk's transfers, and whether the run waited for them.
  void report() const {
    if (!offloaded_ || !first_step_begun_ || offloaded_->file_bytes() == 0) return;
    const ddh::Tier::Traffic all = offloaded_->file_traffic(), &before = file_traffic_before_;
    const double seconds = std::chrono::duration<double>(last_step_ended_ - *first_step_begun_).count();
    const double waited = seconds > 0 ? (all.wait_seconds - before.wait_seconds) / seconds : 0;
    const double busy = all.busy_seconds - before.busy_seconds;
    const uint64_t read = all.read_bytes - before.read_bytes, written = all.written_bytes - before.written_bytes;
    host.log(DDH_LOG_INFO, "nvme, in the steps: ", read, " bytes read, ", written, " written, ",
             busy > 0 ? std::lround(static_cast<double>(read + written) / busy / 1e6) : 0,
             " MB/s while it was busy; the steps waited for it ", std::lround(100 * waited),
             " % of their time: ", waited >= kDiskLimits ? "the disk limits the run" : "computation limits the run");
  }

  // This rank's segment of a space, or nullptr if it is offloaded; and the sums of its gradients in this step.
  const std::function<void*(size_t)> values_ = [this](size_t s) { return params().values(s); };
  const std::function<const float*(size_t)> sum_ = [this](size_t s) { return grads().sum(s); };
  static constexpr auto kEvery = [](size_t) { return true; };
  static constexpr double kDiskLimits = 0.1;  // fraction of the time; below it, a faster disk gains little

  struct Counted {
    uint64_t file_read = 0, file_written = 0, memory_read = 0, memory_written = 0;
  };

  const ddh::PrefetchPolicy policy_;
  ddh::OffloadSettings settings_;
  bool params_away_ = false;
  std::optional<ddh::OffloadedState> offloaded_;  // destroyed before the views that it reads to (owned by the base)
  std::optional<Clock::time_point> first_step_begun_;
  Clock::time_point last_step_ended_{};
  ddh::Tier::Traffic file_traffic_before_;
  Counted counted_;
};

constexpr auto kOptions = ddh::joined(ddh::kPrefetchOptions, {ddh::kOverlapComm}, kOffloadOptions);
constexpr uint64_t kCaps = DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_SHARDS_OPTIM | DDH_CAP_SHARDS_GRAD |
                           DDH_CAP_SHARDS_PARAM | DDH_CAP_OFFLOADS;

}  // namespace

DDH_CXX_PLUGIN(Zero3Offload, strategy, "zero3_offload", "0.1.0",
               "zero3 with optimizer state and parameters in host memory or on disk (ZeRO-Offload, ZeRO-Infinity)",
               ddh::kSchemaOf<kOptions>, ddh::DataParallel::kNeedsOfOffload, kCaps, 0, ddh::DataParallel::kUnderstands);
