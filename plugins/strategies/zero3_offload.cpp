// SPDX-License-Identifier: Apache-2.0
//
// zero3_offload: zero3 whose optimizer state and, by option, parameters live on another tier: the host's pinned memory
// (cpu) or a file on a fast disk (nvme).
//
// Each of N ranks owns      as zero3: 1/N of the parameters, of the gradients and of the optimizer state
// Bytes per rank            on the device, fp32 AdamW: 4 P/N of gradients, what zero3 has in flight, and the frames:
//                           buffer_count * (arrays of state, + 1 with offload_param) * buffer_bytes; what is not
//                           offloaded as in zero3: 4 P/N of parameters, 8 P/N of optimizer state (of which `ratio` leaves)
//                           on the tier: r 8 P/N, and with offload_param 4 P/N: in pinned memory with cpu (it counts as
//                           optim and param), in one file with nvme (no memory)
//                           with offload_param every open unit has its full parameters in a buffer of this rank's,
//                           since pages of a window would stay: a host pays for N of them
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
#include <functional>
#include <optional>
#include <set>

#include "ddh/sdk/gathered_params.hpp"
#include "ddh/sdk/grad_ring.hpp"
#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/strategy.hpp"
#include "ddh/sdk/tier/offloaded_state.hpp"

namespace {

ddh::Place place_of(const std::string& name) {
  return name == "nvme" ? ddh::Place::nvme : name == "cpu" ? ddh::Place::cpu : ddh::Place::device;
}

class Zero3Offload final : public ddh::Strategy {
 public:
  explicit Zero3Offload(const ddh_create& create)
      : Strategy(create), prefetch_units_(static_cast<uint32_t>(host.i64("strategy.prefetch_units"))) {
    settings_.values = place_of(host.text("strategy.offload_param.device"));
    settings_.state = place_of(host.text("strategy.offload_optimizer.device"));
    settings_.ratio = host.f64("strategy.offload_optimizer.ratio");
    settings_.tile_bytes = ddh::Tier::round_up(static_cast<uint64_t>(host.i64("strategy.buffer_bytes")));
    settings_.frames = static_cast<uint32_t>(host.i64("strategy.buffer_count"));
    settings_.folder = host.text("strategy.nvme_path");
    settings_.folder_option = "strategy.nvme_path";
    settings_.io = host.text("strategy.io");
    params_away_ = settings_.values != ddh::Place::device;
    settings_.overlap = {host.flag("strategy.offload_optimizer.pipeline_read"),
                         host.flag("strategy.offload_optimizer.pipeline_write")};
    settings_.values_in_memory = static_cast<uint64_t>(host.i64("strategy.offload_param.max_in_cpu"));
    refuse_what_changes_bits_or_waits();
  }
  ~Zero3Offload() override { report(); }
  Zero3Offload(const Zero3Offload&) = delete;
  Zero3Offload& operator=(const Zero3Offload&) = delete;

  void attach(const ddh_attach_args& args) override {
    require_host_device();
    args_ = ddh::copy_of(args);
    layout_ = ddh::ModelLayout(*args.model, args.world_size, args.compute_dtype, ddh::whole_params(host, *args.model));
    views_ = ddh::UnitViews(*args.model, layout_);
    gathers_by_copy_ = params_away_ || (host.window->caps(host.h, args.group) & DDH_COMM_SHARED_VIEW) == 0;
    grads_ = ddh::GradRing(layout_, args_);
    for (const ddh::FlatSpace& space : layout_.spaces) {
      if (!space.shared) view_slot_bytes_ = std::max(view_slot_bytes_, space.value_bytes());
    }
    offloaded_.emplace(host, layout_, args.rank, settings_);
  }

  void plan(ddh_plan& out) override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      if (!params_away_) out.param_bytes += space.value_segment_bytes(args_.rank);
      if (gathers_by_copy_ && space.shared) out.param_bytes += backing_bytes(space.value_bytes());
      if (!space.trained_in(ddh::first_train_program(*args_.model))) continue;
      out.reduce_calls += args_.reduce_order == DDH_RANK_FIRST ? args_.grad_accum_steps : 1;
      if (!params_away_) out.publish_calls += 1;
    }
    if (params_away_) out.publish_calls = gathers_per_step();
    out.grad_bytes = grads_.bytes();
    out.param_bytes += offloaded_->value_bytes() + peak_in_flight_bytes();
    out.optim_bytes = offloaded_->state_bytes();
    out.file_bytes = offloaded_->file_bytes();
  }

  void materialize() override {
    offloaded_->materialize();
    for (const ddh::FlatSpace& space : layout_.spaces) {
      State& s = states_.emplace_back();
      if (!params_away_) s.params.emplace(host, args_.group, space, 0);
      if (gathers_by_copy_ && space.shared) s.own_backing = view_buffer(space.value_bytes());
    }
    write_windows(every_, [&] { offloaded_->init(values_); });
    grads_.materialize(host);
  }

  void step_begin(const ddh_step_begin_args&) override {
    if (!first_step_begun_) {
      first_step_begun_ = Clock::now();
      file_traffic_before_ = offloaded_->file_traffic();
    }
  }

  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override {
    begin_open_unit(use.unit);
    for (uint32_t i = 0; i < std::min(prefetch_units_, use.n_next); ++i) begin_open_unit(use.next[i]);
    for (const size_t s : layout_.unit_uses[static_cast<size_t>(use.unit)]) {
      finish_open(s);
      ++states_[s].uses;
    }
    views_.fill(
        use, version_, [&](size_t s) { return states_[s].view; }, [&](size_t s) { return grads_.writable(s); }, out);
  }

  // Closes all that neither an acquired unit nor the next ones need.
  void release(const ddh_unit_use& use) override {
    for (const size_t s : layout_.unit_uses[static_cast<size_t>(use.unit)]) --states_[s].uses;
    std::set<size_t> keep;
    for (uint32_t i = 0; i < std::min(prefetch_units_, use.n_next); ++i) {
      const std::vector<size_t>& uses = layout_.unit_uses[static_cast<size_t>(use.next[i])];
      keep.insert(uses.begin(), uses.end());
    }
    for (size_t s = 0; s < states_.size(); ++s) {
      if (states_[s].view != nullptr && states_[s].uses == 0 && keep.count(s) == 0) close(s);
    }
  }

  void grads_ready(const ddh_unit_use& use) override {
    const bool last = static_cast<uint32_t>(use.micro_batch) + 1 == args_.grad_accum_steps;
    if (args_.reduce_order == DDH_MICRO_FIRST && !last) return;
    for (const size_t s : layout_.trained_spaces(use.unit, use.program)) {
      grads_.ready(s, last);
      views_.forget_gradients(layout_.spaces[s]);
    }
  }

  void step() override {
    grads_.reduce_all();
    const ddh_step_block* block = nullptr;
    ddh::call(host.optim->decide, host.h, &block);
    const auto grad = [&](size_t s) { return grads_.segment(s); };
    if (block->skip == 0) offloaded_->prepare(values_, grad);
    ddh::sum_norms(host);
    write_windows(grad, [&] {
      if (block->skip == 0) offloaded_->update(values_, grad);
    });
    grads_.step_done();
    count_traffic();
    ++version_;
  }

  std::vector<ddh_state_entry> state() override {
    std::vector<ddh_state_entry> out;
    offloaded_->forget_entries();
    for (size_t s = 0; s < states_.size(); ++s) offloaded_->append_state_entries(out, s, values_(s));
    return out;
  }
  void state_read(uint32_t entry, uint64_t offset, uint64_t numel, void* dst) override {
    offloaded_->copy_entry(entry, offset, numel, dst, nullptr);
  }
  void state_write(uint32_t entry, uint64_t offset, uint64_t numel, const void* src) override {
    offloaded_->copy_entry(entry, offset, numel, nullptr, src);
  }

  void state_commit() override {
    write_windows(every_, [&] { offloaded_->refresh(values_); });
    ++version_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kNone = SIZE_MAX;

  struct State {
    std::optional<ddh::Window> params;  // unless they are away
    char* view = nullptr;               // while open
    uint32_t uses = 0;                  // acquires without their release
    bool is_reading = false;            // this rank's segment is on its way; the others' come when it is there
    size_t backing = kNone;             // index in backings_ while open, where a gather copies
    size_t own_backing = kNone;         // of a shared space
  };

  void refuse_what_changes_bits_or_waits() const {
    if (host.flag("strategy.delayed_update"))
      ddh::fail(DDH_FAILED_PRECONDITION,
                "strategy.delayed_update=true would update with the gradients of the step before, ",
                "and the bits would not be zero3's; set it to false");
    for (const char* key : {"strategy.offload_optimizer.pin_memory", "strategy.offload_param.pin_memory"})
      if (!host.flag(key))
        ddh::fail(DDH_FAILED_PRECONDITION, key,
                  "=false: copies from pageable memory can't go on beside the computation; ",
                  "what is offloaded to cpu is always pinned, set it to true");
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
    for (size_t s = 0; s < states_.size(); ++s)
      if (states_[s].params && chosen(s)) states_[s].params->write_begin();
    body();
    for (size_t s = 0; s < states_.size(); ++s)
      if (states_[s].params && chosen(s)) states_[s].params->commit();
  }

  // A full view's memory, and room to place this rank's segment on a boundary that a tier can read to.
  uint64_t backing_bytes(uint64_t value_bytes) const {
    return value_bytes + (params_away_ ? 2 * ddh::Tier::kAlignment : 0);
  }
  size_t view_buffer(uint64_t value_bytes) {
    backings_.emplace_back(host, DDH_TAG_PARAM, backing_bytes(value_bytes), "zero3_offload gathered parameters");
    return backings_.size() - 1;
  }
  uint64_t segment_offset_bytes(const ddh::FlatSpace& space) const {
    return space.cut.segment_offset[static_cast<size_t>(args_.rank)] * ddh_dtype_bytes(space.dtype);
  }
  char* view_in(const ddh::Buffer& backing, const ddh::FlatSpace& space) const {
    const uint64_t segment = reinterpret_cast<uintptr_t>(backing.data()) + segment_offset_bytes(space);
    return static_cast<char*>(backing.data()) + (ddh::Tier::round_up(segment) - segment);
  }

  void begin_open_unit(int32_t unit) {
    for (const size_t index : layout_.unit_uses[static_cast<size_t>(unit)]) {
      State& s = states_[index];
      if (s.view != nullptr) continue;
      if (gathers_by_copy_) s.backing = s.own_backing != kNone ? s.own_backing : take_backing();
      if (!params_away_) {
        s.view = static_cast<char*>(s.params->open(s.backing == kNone ? nullptr : backings_[s.backing].data()));
        continue;
      }
      const ddh::FlatSpace& space = layout_.spaces[index];
      s.view = view_in(backings_[s.backing], space);
      offloaded_->begin_fetch(index, s.view + segment_offset_bytes(space));
      s.is_reading = true;
    }
  }
  void finish_open(size_t index) {
    State& s = states_[index];
    if (!std::exchange(s.is_reading, false)) return;
    const ddh::Span span(host, DDH_SPAN_COMM, "fetch");
    offloaded_->finish_fetch(index);
    const ddh::FlatSpace& space = layout_.spaces[index];
    ddh_coll c{};
    c.struct_size = sizeof c;
    c.dtype = space.dtype;
    c.send = s.view + segment_offset_bytes(space);
    c.recv = s.view;
    c.counts = space.cut.segment_numel.data();
    c.group = args_.group;
    c.label = space.name.c_str();
    ddh::call(host.comm->all_gather, host.h, &c);
  }
  void close(size_t index) {
    State& s = states_[index];
    if (s.params) s.params->close();
    if (std::exchange(s.is_reading, false)) offloaded_->finish_fetch(index);
    s.view = nullptr;
    if (s.backing != kNone && s.backing != s.own_backing) free_backings_.push_back(s.backing);
    s.backing = kNone;
  }
  size_t take_backing() {
    if (free_backings_.empty()) return view_buffer(view_slot_bytes_);
    const size_t slot = free_backings_.back();
    free_backings_.pop_back();
    return slot;
  }

  // The units in the order of a step's uses.
  std::vector<int32_t> uses_of(const ddh_program_desc& program, uint32_t micro_batches) const {
    const bool trains = program.kind != DDH_PROGRAM_EVAL;
    return ddh::UnitOrder(program, args_, trains ? micro_batches : 1).units;
  }
  // Spaces of order[begin] and the uses behind it, `count` in all or as many as there are.
  std::set<size_t> spaces_of(const std::vector<int32_t>& order, size_t begin, size_t count) const {
    std::set<size_t> spaces;
    for (size_t j = begin; j < std::min(begin + count, order.size()); ++j) {
      const std::vector<size_t>& uses = layout_.unit_uses[static_cast<size_t>(order[j])];
      spaces.insert(uses.begin(), uses.end());
    }
    return spaces;
  }

  // The highest sum, over the steps of every program, of what is open beyond this rank's segments.
  uint64_t peak_in_flight_bytes() const {
    uint64_t peak = 0;
    for (uint32_t p = 0; p < args_.model->n_programs; ++p) {
      const std::vector<int32_t> order = uses_of(*args_.model->programs[p], std::min(args_.grad_accum_steps, 2U));
      for (size_t i = 0; i < order.size(); ++i) {
        uint64_t bytes = 0;
        for (const size_t s : spaces_of(order, i, prefetch_units_ + 1)) bytes += in_flight_bytes(layout_.spaces[s]);
        peak = std::max(peak, bytes);
      }
    }
    return peak;
  }
  uint64_t in_flight_bytes(const ddh::FlatSpace& space) const {
    if (!gathers_by_copy_) return space.value_bytes() - space.value_segment_bytes(args_.rank);
    return space.shared ? 0 : backing_bytes(view_slot_bytes_);  // shared ones have a buffer of their own
  }
  // How often a space is opened in a step of the first train program.
  uint64_t gathers_per_step() const {
    uint32_t p = 0;
    while (p < args_.model->n_programs && args_.model->programs[p]->kind != DDH_PROGRAM_TRAIN) ++p;
    if (p == args_.model->n_programs) return 0;
    const std::vector<int32_t> order = uses_of(*args_.model->programs[p], args_.grad_accum_steps);
    uint64_t gathers = 0;
    std::set<size_t> kept;  // by the release of the use before
    for (size_t i = 0; i < order.size(); ++i) {
      for (const size_t s : spaces_of(order, i, prefetch_units_ + 1)) gathers += kept.count(s) == 0 ? 1 : 0;
      kept = spaces_of(order, i + 1, prefetch_units_);
    }
    return gathers;
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
    host.log(DDH_LOG_INFO, "nvme: ", read, " bytes read, ", written, " written, ",
             busy > 0 ? static_cast<uint64_t>(static_cast<double>(read + written) / busy / 1e6) : 0,
             " MB/s while it was busy; the steps waited for it ", static_cast<int>(100 * waited + 0.5),
             " % of their time: ", waited >= kDiskLimits ? "the disk limits the run" : "computation limits the run");
  }

  // This rank's segment of a space, unless it is away.
  const std::function<void*(size_t)> values_ = [this](size_t s) {
    return states_[s].params ? states_[s].params->segment() : nullptr;
  };
  static constexpr auto every_ = [](size_t) { return true; };
  static constexpr double kDiskLimits = 0.1;  // share of the time: with less, a faster disk gains little

  struct Counted {
    uint64_t file_read = 0, file_written = 0, memory_read = 0, memory_written = 0;
  };

  const uint32_t prefetch_units_;
  ddh::OffloadSettings settings_;
  bool params_away_ = false;
  ddh_attach_args args_{};
  ddh::ModelLayout layout_;
  ddh::UnitViews views_;
  bool gathers_by_copy_ = false;
  uint64_t view_slot_bytes_ = 0;  // of the largest space that is not shared
  std::vector<State> states_;     // per space
  ddh::GradRing grads_;
  std::vector<ddh::Buffer> backings_;
  std::vector<size_t> free_backings_;
  std::optional<ddh::OffloadedState> offloaded_;  // after what it reads to
  uint64_t version_ = 1;
  std::optional<Clock::time_point> first_step_begun_;
  Clock::time_point last_step_ended_{};
  ddh::Tier::Traffic file_traffic_before_;
  Counted counted_;
};

constexpr const char* kSchema = R"({"type": "object", "properties": {
  "prefetch_units": {"type": "integer", "default": 1, "minimum": 0, "maximum": 64,
    "description": "how many units to gather ahead of the one in use", "x-affects": "memory"},
  "offload_optimizer": {"type": "object", "properties": {
    "device": {"type": "string", "enum": ["none", "cpu", "nvme"], "default": "cpu",
      "description": "where the optimizer state lives: on the device, in pinned memory, on a file in nvme_path"},
    "ratio": {"type": "number", "default": 1.0, "minimum": 0, "maximum": 1,
      "description": "the part of the optimizer state that is offloaded, in whole buffers"},
    "pipeline_read": {"type": "boolean", "default": true, "description": "read buffers ahead of the update"},
    "pipeline_write": {"type": "boolean", "default": true, "description": "write buffers behind the update"},
    "pin_memory": {"type": "boolean", "default": true, "description": "always so: false is refused"},
    "fast_init": {"type": "boolean", "default": true,
      "description": "always so, false changes nothing: state that was never written takes no transfer"}}},
  "offload_param": {"type": "object", "properties": {
    "device": {"type": "string", "enum": ["none", "cpu", "nvme"], "default": "none",
      "description": "where the parameters live between uses of their unit"},
    "max_in_cpu": {"type": "integer", "default": 0, "minimum": 0, "x-unit": "elements", "x-affects": "memory",
      "description": "with nvme: so many of this rank's parameters stay in pinned memory, by whole units"},
    "pin_memory": {"type": "boolean", "default": true, "description": "always so: false is refused"}}},
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
  "x-aliases": {"offload_optimizer.nvme_path": {"key": "nvme_path"}, "offload_param.nvme_path": {"key": "nvme_path"},
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
                   DDH_CAP_SHARDS_PARAM | DDH_CAP_OFFLOADS);
