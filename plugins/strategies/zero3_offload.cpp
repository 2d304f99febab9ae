// SPDX-License-Identifier: Apache-2.0
//
// zero3_offload: zero3 whose optimizer state and, by option, parameters live on another tier: the host's pinned memory
// (cpu) or a file on a fast disk (nvme).
//
// Each of N ranks owns      as zero3: 1/N of the parameters, of the gradients and of the optimizer state
// Bytes per rank            on the device, fp32 AdamW: 4 P/N of gradients, what zero3 has in flight, and the frames:
//                           buffer_count * (arrays of state that is offloaded, + 1 with offload_param) * buffer_bytes,
//                           each no longer than the longest segment; what is not offloaded as in zero3: 4 P/N of
//                           parameters, 8 P/N of optimizer state (of which `ratio` leaves)
//                           on the tier: r 8 P/N, and with offload_param 4 P/N: in pinned memory with cpu (it counts as
//                           optim and param), in one file with nvme (no memory)
//                           with offload_param every open unit has its full parameters in a buffer of this rank's,
//                           since pages of a window would stay: a host pays for N of them
//                           persistence_bytes and overlap_comm as in zero3
//                           an optimizer that needs whole parameters: frames as large as a unit's share of these
// In bf16 and fp16          parameters take half, and 4 P/N for the master come to the optimizer state, also on the tier
// Moved per rank and step   as zero3 between ranks; between tier and device r 8 P/N read and written in step(), with
//                           offload_param 4 P/N more of each, and 4 P/N read at each gather: twice a micro-batch; in a
//                           low precision r 12 P/N, and 2 P/N of parameters that are written alone
//                           with norms of parameters the state once more read, and the slots once more written
// Collectives per step      as zero3; with offload_param an all_gather for each gather instead of the publish
// P: parameters of the model, each padded to 64 elements. Sources: Ren et al., ZeRO-Offload, ATC 2021; Rajbhandari et
// al., ZeRO-Infinity, SC 2021. The update is never delayed: the bits are zero3's.
//
// Against zero3: step() goes over tiles instead of segments, so that one is updated while the next is read and the last
// one written; and a segment that is away comes by a read, which begins with the prefetch, and an all_gather.
#include <cmath>
#include <functional>
#include <optional>

#include "ddh/sdk/grad_ring.hpp"
#include "ddh/sdk/prefetch_policy.hpp"
#include "ddh/sdk/stage_options.hpp"
#include "ddh/sdk/strategy.hpp"
#include "ddh/sdk/tier/fetched_params.hpp"
#include "ddh/sdk/tier/offloaded_state.hpp"

namespace {

ddh::Place place_of(const std::string& name) {
  return name == "nvme" ? ddh::Place::nvme : name == "cpu" ? ddh::Place::cpu : ddh::Place::device;
}

class Zero3Offload final : public ddh::Strategy {
 public:
  explicit Zero3Offload(const ddh_create& create) : Strategy(create), policy_(options) {
    settings_.values = place_of(options.text("offload_param.device"));
    settings_.state = place_of(options.text("offload_optimizer.device"));
    settings_.ratio = options.f64("offload_optimizer.ratio");
    settings_.tile_bytes = ddh::Tier::round_up(static_cast<uint64_t>(options.i64("buffer_bytes")));
    settings_.frames = static_cast<uint32_t>(options.i64("buffer_count"));
    settings_.folder = options.text("nvme_path");
    settings_.folder_option = "strategy.nvme_path";
    settings_.io = options.text("io");
    params_away_ = settings_.values != ddh::Place::device;
    settings_.overlap = {options.flag("offload_optimizer.pipeline_read"),
                         options.flag("offload_optimizer.pipeline_write")};
    settings_.values_in_memory = static_cast<uint64_t>(options.i64("offload_param.max_in_cpu"));
    refuse_what_changes_bits_or_waits();
  }
  ~Zero3Offload() override { report(); }
  Zero3Offload(const Zero3Offload&) = delete;
  Zero3Offload& operator=(const Zero3Offload&) = delete;

  void attach(const ddh_attach_args& args) override {
    require_host_device();
    args_ = args;
    layout_ = ddh::ModelLayout(args_, ddh::whole_params(host, *args.model), policy_.grouping());
    views_ = ddh::UnitViews(*args.model, layout_);
    offloaded_.emplace(host, layout_, args.rank, settings_);
    if (args.rank == 0) warn_of_idle();
    gathered_ = gathered();
    grads_ = ddh::GradRing(layout_, args_, {.overlap = options.flag("overlap_comm")});
  }

  void plan(ddh_plan& out) override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      if (!space.trained_in(layout_.first_program())) continue;
      out.reduce_calls += ddh::reductions_per_step(args_);
      if (!params_away_) out.publish_calls += 1;
    }
    const auto open = [this](const auto& use, auto& params) { policy_.open(use, params); };
    const auto close = [this](const auto& use, auto& params) { policy_.close(use, params); };
    Gathered dry = gathered(), step = gathered();
    out.param_bytes = dry.params.resting_bytes() + ddh::peak_open_bytes(dry.params, open, close);
    ddh::run_train_step(
        layout_, [&](const auto& use) { open(use, step.params); }, [&](const auto& use) { close(use, step.params); });
    if (step.source) out.publish_calls = step.source->gathers();
    out.grad_bytes = grads_.bytes();
    out.optim_bytes = offloaded_->state_bytes();
    out.file_bytes = offloaded_->file_bytes();
  }

  void materialize() override {
    offloaded_->materialize();
    gathered_.params.materialize();
    write_windows(kEvery, [&] { offloaded_->init(values_); });
    grads_.materialize(host);
  }

  void step_begin(const ddh_step_begin_args&) override {
    if (!first_step_begun_) {
      first_step_begun_ = Clock::now();
      file_traffic_before_ = offloaded_->file_traffic();
    }
  }

  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override {
    policy_.open(use, gathered_.params);
    views_.fill(
        use, version_, [&](size_t s) { return gathered_.params.view(s); }, [&](size_t s) { return grads_.writable(s); },
        out);
  }

  void release(const ddh_unit_use& use) override { policy_.close(use, gathered_.params); }

  void grads_ready(const ddh_unit_use& use) override { ddh::hand_over(use, args_, layout_, views_, grads_); }

  void step() override {
    grads_.reduce_all();
    const ddh_step_block& block = ddh::decide(host);
    const auto grad = [&](size_t s) { return grads_.segment(s); };
    if (block.skip == 0) offloaded_->prepare(values_, grad);
    ddh::sum_norms(host);
    write_windows(grad, [&] {
      if (block.skip == 0) offloaded_->update(values_, grad);
    });
    grads_.step_done();
    count_traffic();
    ++version_;
  }

  std::vector<ddh_state_entry> state() override {
    std::vector<ddh_state_entry> out;
    offloaded_->forget_entries();
    for (size_t s = 0; s < layout_.spaces.size(); ++s) offloaded_->append_state_entries(out, s, values_(s));
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
    ++version_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Full views, and what stands behind them where segments are away.
  struct Gathered {
    std::unique_ptr<ddh::FetchedParams> source;
    ddh::GatheredParams params;
  };
  // In numbers only, until it is materialized.
  Gathered gathered() {
    Gathered out;
    if (params_away_)
      out.source = std::make_unique<ddh::FetchedParams>(host, layout_, args_.group, args_.rank, *offloaded_);
    out.params = ddh::GatheredParams(host, layout_, args_.group, args_.rank, out.source.get());
    return out;
  }

  void refuse_what_changes_bits_or_waits() const {
    if (options.flag("delayed_update"))
      ddh::fail(DDH_FAILED_PRECONDITION,
                "strategy.delayed_update=true (or offload_optimizer.super_offload) would update with the gradients of "
                "the step before, ",
                "and the bits would not be zero3's; set it to false");
    for (const std::string section : {"strategy.offload_optimizer", "strategy.offload_param"})
      if (host.text((section + ".device").c_str()) != "none" && !host.flag((section + ".pin_memory").c_str()))
        ddh::fail(DDH_FAILED_PRECONDITION, section,
                  ".pin_memory=false: copies from pageable memory can't go on beside the computation; ",
                  "what is offloaded is always pinned, set it to true");
    if (params_away_ && policy_.grouping().persistent_bytes > 0)
      ddh::fail(DDH_FAILED_PRECONDITION, "strategy.persistence_bytes=", policy_.grouping().persistent_bytes,
                " keeps small parameters gathered, and strategy.offload_param.device=",
                options.text("offload_param.device"), " lets none rest on the device; set one of them to 0 or none");
  }

  // Options of a place that was not chosen.
  void warn_of_idle() const {
    const auto warn_if = [&](bool idle, const char* option, const char* without) {
      if (idle) host.log(DDH_LOG_WARN, "strategy.", option, " changes nothing without ", without);
    };
    const bool uses_files = settings_.values == ddh::Place::nvme || settings_.state == ddh::Place::nvme;
    warn_if(settings_.state == ddh::Place::device && settings_.ratio != 1, "offload_optimizer.ratio",
            "offload_optimizer.device=cpu or nvme");
    warn_if(settings_.values != ddh::Place::nvme && settings_.values_in_memory > 0, "offload_param.max_in_cpu",
            "offload_param.device=nvme");
    warn_if(!uses_files && !settings_.folder.empty(), "nvme_path", "a device=nvme");
  }

  // Frames of files are updated where they are read to, in the host's memory.
  void require_host_device() const {
    const bool uses_files = settings_.values == ddh::Place::nvme || settings_.state == ddh::Place::nvme;
    if (uses_files && host.text("device.plugin") != "cpu")
      ddh::fail(DDH_FAILED_PRECONDITION,
                "zero3_offload updates what is on nvme in the host's memory; with device.plugin=",
                host.text("device.plugin"), " offload to cpu");
  }

  // Runs `body` with the windows of the chosen spaces open for writing, where there are windows.
  template <class Chosen, class Body>
  void write_windows(Chosen&& chosen, Body&& body) {
    if (params_away_) return body();
    for (size_t s = 0; s < layout_.spaces.size(); ++s)
      if (chosen(s)) gathered_.params.window(s).write_begin();
    body();
    for (size_t s = 0; s < layout_.spaces.size(); ++s)
      if (chosen(s)) gathered_.params.window(s).commit();
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

  // At the end: what the disk has done, and whether the run waited for it.
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

  // This rank's segment of a space, unless it is away.
  const std::function<void*(size_t)> values_ = [this](size_t s) {
    return params_away_ ? nullptr : gathered_.params.window(s).segment();
  };
  static constexpr auto kEvery = [](size_t) { return true; };
  static constexpr double kDiskLimits = 0.1;  // share of the time: with less, a faster disk gains little

  struct Counted {
    uint64_t file_read = 0, file_written = 0, memory_read = 0, memory_written = 0;
  };

  const ddh::PrefetchPolicy policy_;
  ddh::OffloadSettings settings_;
  bool params_away_ = false;
  ddh_attach_args args_{};
  ddh::ModelLayout layout_;
  ddh::UnitViews views_;
  Gathered gathered_;
  ddh::GradRing grads_;
  std::optional<ddh::OffloadedState> offloaded_;  // after what it reads to
  uint64_t version_ = 1;
  std::optional<Clock::time_point> first_step_begun_;
  Clock::time_point last_step_ended_{};
  ddh::Tier::Traffic file_traffic_before_;
  Counted counted_;
};

constexpr const char* kSchema = R"({"type": "object", "properties": {
  "overlap_comm": {"type": "boolean", "default": true, "x-affects": "memory",
    "description": "sum a unit's gradients while the next ones are computed; false: at once, with a buffer less"},
)" DDH_STAGE_OPTIONS("3") "," DDH_STAGE3_IDLE_OPTIONS "," DDH_PREFETCH_OPTIONS R"(,
  "offload_optimizer": {"type": "object", "properties": {
    "device": {"type": "string", "enum": ["none", "cpu", "nvme"], "default": "cpu",
      "x-spellings": {"null": "none"},
      "description": "where the optimizer state lives: on the device, in pinned memory, on a file in nvme_path"},
    "ratio": {"type": "number", "default": 1.0, "minimum": 0, "maximum": 1,
      "description": "the part of the optimizer state that is offloaded, in whole buffers"},
    "pipeline_read": {"type": "boolean", "default": true, "description": "read buffers ahead of the update"},
    "pipeline_write": {"type": "boolean", "default": true, "description": "write buffers behind the update"},
    "pin_memory": {"type": "boolean", "default": true,
      "description": "always so: false is refused where something is offloaded"},
    "fast_init": {"type": "boolean", "default": true,
      "x-idle": "state that was never written takes no transfer", "description": "always so"}}},
  "offload_param": {"type": "object", "properties": {
    "device": {"type": "string", "enum": ["none", "cpu", "nvme"], "default": "none",
      "description": "where the parameters live between uses of their unit"},
    "max_in_cpu": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "elements", "x-affects": "memory",
      "description": "with nvme: so many of this rank's parameters stay in pinned memory, by whole units"},
    "pin_memory": {"type": "boolean", "default": true,
      "description": "always so: false is refused where something is offloaded"}}},
  "delayed_update": {"type": "boolean", "default": false,
    "description": "false only: an update with older gradients would give other numbers"},
  "nvme_path": {"type": "string", "default": "", "x-path": true,
    "description": "a folder on a fast disk; needed for nvme. The files there have no name and go with the run"},
  "buffer_bytes": {"type": "integer", "default": 8388608, "minimum": 4096, "maximum": 1073741824, "x-unit": "bytes",
    "description": "size of a buffer, and of what moves at a time; rounded up to 4096", "x-affects": "memory"},
  "buffer_count": {"type": "integer", "default": 3, "minimum": 1, "maximum": 64,
    "description": "tiles under way: 3 read, update and write at once, more read further ahead", "x-affects": "memory"},
  "io": {"type": "string", "enum": ["auto", "uring", "pread"], "default": "auto",
    "description": "how files are read and written; auto: io_uring, else pread with a warning"}},
  "x-aliases": {)" DDH_PREFETCH_ALIASES "," DDH_OFFLOAD_ALIASES R"(,
    "offload_optimizer.nvme_path": {"key": "nvme_path"},
    "offload_param.nvme_path": {"key": "nvme_path"},
    "offload_optimizer.buffer_count": {"key": "buffer_count"}, "offload_param.buffer_count": {"key": "buffer_count"},
    "offload_param.buffer_size": {"key": "buffer_bytes", "scale": 4},
    "offload_optimizer.super_offload": {"key": "delayed_update"}}})";
constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE,   DDH_CONFIG_IFACE, DDH_WINDOW_IFACE, DDH_OPTIM_IFACE,
                                  DDH_PARAMS_IFACE,  DDH_STREAM_IFACE, DDH_COPY_IFACE,   DDH_COMM_IFACE,
                                  DDH_FLATOPS_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Zero3Offload, strategy, "zero3_offload", "0.1.0",
               "zero3 with optimizer state and parameters in host memory or on disk (ZeRO-Offload, ZeRO-Infinity)",
               kSchema, kNeeds,
               DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED | DDH_CAP_SHARDS_OPTIM | DDH_CAP_SHARDS_GRAD |
                   DDH_CAP_SHARDS_PARAM | DDH_CAP_OFFLOADS,
               0, DDH_FEATURES_ALL);
