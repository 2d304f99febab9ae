// SPDX-License-Identifier: Apache-2.0
//
// The built optimizers, each loaded twice: with the services of a GPU, where it queues its kernels, and with those of the
// CPU, where it computes in vectors. Both get the same numbers and must give the same bits. It runs on the stand-in for the
// driver, and on a real one (place.hpp).
#include <cmath>
#include <span>

#include "ddh/sdk/kernels/lowp.hpp"
#include "gpu/cuda_fixture.hpp"
#include "gpu/numbers.hpp"
#include "unit/plugins/optimizers/optimizer_reference.hpp"

using namespace ddhost::test;

namespace {

struct Setup {
  std::string plugin;
  Numbers numbers;  // options, without "optimizer."
  Texts texts;
};

// A matrix comes first. Of each following number of elements there is a parameter with small numbers, and one with
// numbers of all magnitudes, with infinities and a NaN.
constexpr int64_t kRows = 33, kColumns = 40;
constexpr uint64_t kSizes[] = {1, 63, 64, 65, 100003}, kFewSizes[] = {1, 63, 64, 65, 1000};

std::vector<uint64_t> numels_of(std::span<const uint64_t> sizes) {
  std::vector<uint64_t> out = {static_cast<uint64_t>(kRows * kColumns)};
  for (const uint64_t n : sizes) out.insert(out.end(), {n, n});
  return out;
}
bool is_finite(size_t param) { return param == 0 || param % 2 == 1; }

// In [-1, 1), with denormals.
std::vector<float> finite_numbers(uint64_t n, uint64_t seed) {
  std::vector<float> out = small_numbers(n, seed);
  for (uint64_t i = 3; i < n; i += 7) out[i] *= 0x1p-130F;
  return out;
}

void fill(Shard& shard) {
  uint64_t seed = 0;
  const auto fill_array = [&](std::vector<float>& array, bool is_state) {
    for (size_t p = 0; p < shard.ranges.size(); ++p) {
      const ddh_range& range = shard.ranges[p];
      const std::vector<float> from =
          is_finite(p) ? finite_numbers(range.numel, ++seed) : numbers(range.numel, ++seed, true);
      for (uint64_t i = 0; i < range.numel; ++i)
        array[range.flat_offset + i] = is_state && is_finite(p) ? std::abs(from[i]) : from[i];
    }
  };
  fill_array(shard.master, false);
  for (auto& slot : shard.slots) fill_array(slot, true);
  for (auto& grad : shard.grads) fill_array(grad, false);
}

// The model that an optimizer sees: parameters with these numbers of elements.
class Model {
 public:
  explicit Model(const std::vector<uint64_t>& numels) : params_(numels.size()) {
    for (size_t i = 0; i < numels.size(); ++i) {
      params_[i].struct_size = sizeof(ddh_param_desc);
      params_[i].name = "w";
      params_[i].numel = numels[i];
      params_[i].shape = kShape;
      params_[i].n_dims = i == 0 ? 2 : 1;
      pointers_.push_back(&params_[i]);
    }
    desc.struct_size = sizeof desc;
    desc.n_params = static_cast<uint32_t>(numels.size());
    desc.params = pointers_.data();
  }
  ddh_model_desc desc{};

 private:
  static constexpr int64_t kShape[] = {kRows, kColumns};
  std::vector<ddh_param_desc> params_;
  std::vector<const ddh_param_desc*> pointers_;
};

class Optimizer {
 public:
  // `gpu`: nullptr for the CPU.
  Optimizer(const Setup& setup, const ddh_model_desc& model, CudaDevice* gpu)
      : gpu_(gpu),
        host_{sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, gpu == nullptr ? nullptr : gpu->context,
              gpu == nullptr ? of_cpu : of_gpu} {
    given_ = &setup;
    if (gpu != nullptr) table_of_gpu_ = gpu->table;
    void* const library = dlopen((build_folder() + "/plugins/" + setup.plugin + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) ddh::fail(DDH_UNAVAILABLE, dlerror());
    ddh::call(reinterpret_cast<Entry>(dlsym(library, DDH_ENTRY_SYMBOL)), &host_, &module_);
    const ddh_create create{sizeof(ddh_create), 0, &host_, setup.plugin.c_str(), "optimizer"};
    ddh::call(module_->create, &create, &inst_);
    table_ = static_cast<const ddh_optimizer_api*>(module_->get_interface(inst_, DDH_OPTIMIZER_IFACE));
    ddh::call(table_->attach, inst_, &model);
  }
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  ~Optimizer() { module_->destroy(inst_); }

  [[nodiscard]] uint32_t slot_count() const { return table_->slot_count(inst_); }

  // Changes the arrays of `shard`, which the GPU gets as copies.
  void update(Shard& shard, int32_t lowp_dtype, const ddh_step_block& block,
              const std::vector<int64_t>& param_steps) const {
    ddh_optim_shard view = shard.view(lowp_dtype);
    std::vector<void*> slots = shard.slot_pointers;
    std::vector<const float*> grads = shard.grad_pointers;
    if (gpu_ != nullptr) {
      view.master = gpu_->upload(shard.master);
      view.lowp = gpu_->upload(shard.lowp);
      for (size_t i = 0; i < slots.size(); ++i) slots[i] = gpu_->upload(shard.slots[i]);
      for (size_t i = 0; i < grads.size(); ++i) grads[i] = gpu_->upload(shard.grads[i]);
      view.slots = slots.data();
      view.grads = grads.data();
    }
    ddh_update_args args{sizeof(ddh_update_args), 0, &view, &block, param_steps.data(), nullptr, nullptr};
    const std::vector<double> sums = sums_of(args);
    if (!sums.empty()) args.param_sums = sums.data();
    ddh::call(table_->update, inst_, &args);
    if (gpu_ == nullptr) return;
    shard.master = gpu_->read(view.master, shard.master.size());
    shard.lowp = gpu_->read(static_cast<const uint16_t*>(view.lowp), shard.lowp.size());
    for (size_t i = 0; i < slots.size(); ++i)
      shard.slots[i] = gpu_->read(static_cast<const float*>(slots[i]), shard.master.size());
  }

 private:
  // prepare on each parameter, and the exact sums of the squares of what it shows.
  [[nodiscard]] std::vector<double> sums_of(const ddh_update_args& args) const {
    const uint32_t count = table_->sum_count(inst_);
    std::vector<double> out;
    for (uint32_t r = 0; count > 0 && r < args.shard->n_ranges; ++r) {
      const ddh_range& range = args.shard->ranges[r];
      ddh_optim_shard piece = *args.shard;
      piece.ranges = &range;
      piece.n_ranges = 1;
      ddh_update_args of_piece = args;
      of_piece.shard = &piece;
      std::vector<std::vector<float>> values(count, std::vector<float>(range.numel));
      std::vector<float*> places;
      for (auto& v : values) places.push_back(gpu_ == nullptr ? v.data() : gpu_->upload(v));
      const ddh_prepare_args call{sizeof(ddh_prepare_args), count, &of_piece, places.data()};
      ddh::call(table_->prepare, inst_, &call);
      for (uint32_t k = 0; k < count; ++k) {
        if (gpu_ != nullptr) values[k] = gpu_->read(static_cast<const float*>(places[k]), range.numel);
        ddhost::ExactSum sum;
        sum.add_range(values[k].data(), range.numel);
        out.push_back(sum.total());
      }
    }
    return out;
  }

  static const std::vector<double>& find(const char* key) {
    const auto at = given_->numbers.find(std::string(key).substr(std::string_view("optimizer.").size()));
    if (at == given_->numbers.end()) ddh::fail(DDH_NOT_FOUND, "this test gives no ", key);
    return at->second;
  }
  static const void* of_cpu(void*, const char* id) noexcept {
    static const ddh_config_api config = {
        sizeof(ddh_config_api),
        0,
        [](void*, const char* key, int64_t* out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { *out = static_cast<int64_t>(find(key).at(0)); });
        },
        [](void*, const char* key, double* out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { *out = find(key).at(0); });
        },
        [](void*, const char* key, const char** out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] {
            *out = given_->texts.at(std::string(key).substr(std::string_view("optimizer.").size())).c_str();
          });
        },
        [](void*, const char* key, double* out, uint32_t cap, uint32_t* n, ddh_err* err) noexcept {
          return ddh::guard(err, [&] {
            *n = static_cast<uint32_t>(find(key).size());
            std::copy_n(find(key).begin(), std::min(cap, *n), out);
          });
        },
        nullptr,
        nullptr,
    };
    static const ddh_alloc_api memory = {
        sizeof(ddh_alloc_api), 0,
        [](void*, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { *out = ::operator new (args->bytes, std::align_val_t{256}); });
        },
        [](void*, void* p) noexcept { ::operator delete (p, std::align_val_t{256}); }, nullptr};
    const std::string_view name = id;
    if (name == DDH_ALLOC_IFACE) return &memory;
    return name == DDH_CONFIG_IFACE ? &config : nullptr;
  }
  static const void* of_gpu(void* h, const char* id) noexcept {
    static const ddh_alloc_api memory = {
        sizeof(ddh_alloc_api), 0,
        [](void* context, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
          return table_of_gpu_->allocate(context, args, out, err);
        },
        [](void* context, void* p) noexcept { table_of_gpu_->release(context, p, DDH_MEM_DEVICE); }, nullptr};
    const std::string_view name = id;
    if (name == DDH_ALLOC_IFACE) return &memory;
    if (name == DDH_STREAM_IFACE) return table_of_gpu_->stream;
    if (name == DDH_KERNELS_IFACE) return table_of_gpu_->kernels;
    return of_cpu(h, id);
  }

  // For the functions of the tables: the settings of the optimizer that is made, and the GPU's functions.
  static inline const Setup* given_ = nullptr;
  static inline const ddh_device_api* table_of_gpu_ = nullptr;

  CudaDevice* const gpu_;
  const ddh_host host_;
  const ddh_module* module_ = nullptr;
  ddh_inst* inst_ = nullptr;
  const ddh_optimizer_api* table_ = nullptr;
};

void check_same_shards(const Shard& a, const Shard& b, bool is_bf16) {
  check_same(a.master, b.master);
  for (size_t i = 0; i < a.slots.size(); ++i) check_same(a.slots[i], b.slots[i]);
  const auto shown = [&](const Shard& shard) {
    std::vector<float> out;
    for (const uint16_t x : shard.lowp) out.push_back(is_bf16 ? ddh::Bf16::to_f32(x) : ddh::F16::to_f32(x));
    return out;
  };
  check_same(shown(a), shown(b));
}

// Parameters in their first update beside others, with sums of `n_grads` sources.
void check_update(const Setup& setup, std::span<const uint64_t> sizes, uint32_t n_grads, double clip_value,
                  bool to_bf16) {
  const std::vector<uint64_t> numels = numels_of(sizes);
  const Model model(numels);
  CudaDevice gpu;
  const Optimizer on_gpu(setup, model.desc, &gpu), on_cpu(setup, model.desc, nullptr);
  Shard kernels(numels, on_cpu.slot_count(), n_grads);
  fill(kernels);
  Shard vectors = kernels, unclipped = kernels;
  ddh_step_block block = step_block(3, 1e-3);
  block.inv_scale = 0.75;
  block.clip_factor = 0.4;
  block.clip_value = clip_value;
  std::vector<int64_t> param_steps(numels.size());
  for (size_t p = 0; p < param_steps.size(); ++p) param_steps[p] = p / 2 % 2 == 0 ? 3 : 1;
  const int32_t dtype = to_bf16 ? DDH_BF16 : DDH_F16;
  on_gpu.update(kernels, dtype, block, param_steps);
  on_cpu.update(vectors, dtype, block, param_steps);
  check_same_shards(kernels, vectors, to_bf16);
  if (clip_value == 0) return;
  block.clip_value = 0;
  on_cpu.update(unclipped, dtype, block, param_steps);
  CHECK((unclipped.master != vectors.master || unclipped.slots != vectors.slots));
}

}  // namespace

// The options are those of the stored trajectories, so that no optimizer is left out (optimizer_test.cpp).
TEST_CASE("an update by kernels has the bits of the CPU's update in vectors", "[gpu]") {
  const auto c = GENERATE(range(size_t{0}, reference_cases().size()));
  const OptimizerCase& reference = reference_cases()[c];
  Setup setup = {reference.optimizer, options_of(reference), texts_of(reference)};
  // The stand-in takes long for an iteration with matrices, and all iterations are alike.
  if (setup.numbers.contains("ns_steps")) setup.numbers["ns_steps"] = {2};
  INFO(setup.plugin << ", case " << c);
  check_update(setup, kSizes, 2, 0, true);
  check_update(setup, kFewSizes, 3, 0.1, false);
}
