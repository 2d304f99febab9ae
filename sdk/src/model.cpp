// SPDX-License-Identifier: Apache-2.0
//
// The C tables of a C++ model, and its description.
#include "ddh/sdk/model.hpp"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "ddh/sdk/tier/checksum.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

int32_t ModelDesc::add_param(int32_t owner_unit, std::string name, std::vector<int64_t> shape, Init init,
                             uint32_t attributes, std::vector<std::string> tied_names, ParamOptions options) {
  Param& p = params_.emplace_back();
  p.name = std::move(name);
  p.shape = std::move(shape);
  p.tied = std::move(tied_names);
  for (const std::string& tied : p.tied) p.tied_pointers.push_back(tied.c_str());
  p.tied_pointers.push_back(nullptr);
  uint64_t numel = 1;
  for (const int64_t n : p.shape) numel *= static_cast<uint64_t>(n);
  p.desc = {sizeof(ddh_param_desc),
            options.dtype,
            p.name.c_str(),
            p.shape.data(),
            numel,
            static_cast<uint32_t>(p.shape.size()),
            owner_unit,
            attributes,
            init.kind,
            init.a,
            init.b,
            p.tied_pointers.data(),
            init.low,
            init.high,
            options.lr_scale,
            options.compute_dtype,
            0,
            options.grad_block};
  return static_cast<int32_t>(params_.size() - 1);
}

uint32_t ModelDesc::add_buffer(std::string name, std::vector<int64_t> shape, int32_t dtype, void* data, int32_t sync,
                               double fold_decay) {
  Buffer& b = buffers_.emplace_back();
  b.name = std::move(name);
  b.shape = std::move(shape);
  uint64_t numel = 1;
  for (const int64_t n : b.shape) numel *= static_cast<uint64_t>(n);
  b.desc = {sizeof(ddh_buffer_desc),
            dtype,
            b.name.c_str(),
            b.shape.data(),
            numel,
            static_cast<uint32_t>(b.shape.size()),
            sync,
            data,
            fold_decay};
  return static_cast<uint32_t>(buffers_.size() - 1);
}

int32_t ModelDesc::add_unit(std::string name, std::vector<int32_t> params) {
  Unit& u = units_.emplace_back();
  u.name = std::move(name);
  u.params = std::move(params);
  u.desc = {sizeof(ddh_unit_desc), static_cast<uint32_t>(u.params.size()), u.name.c_str(), u.params.data()};
  return static_cast<int32_t>(units_.size() - 1);
}

int32_t ModelDesc::add_program(ProgramSpec spec) {
  Program& p = programs_.emplace_back();
  p.spec = std::move(spec);
  for (const std::string& metric : p.spec.metrics) p.metrics.push_back(metric.c_str());
  for (const std::string& name : p.spec.reported) p.reported.push_back(name.c_str());
  p.desc = {sizeof(ddh_program_desc),
            p.spec.kind,
            p.spec.name.c_str(),
            p.spec.units.data(),
            p.spec.trainable.empty() ? nullptr : p.spec.trainable.data(),
            p.metrics.data(),
            static_cast<uint32_t>(p.spec.units.size()),
            static_cast<uint32_t>(p.metrics.size()),
            p.spec.n_samples,
            p.spec.sample_unit.c_str(),
            p.spec.optimizer,
            static_cast<uint32_t>(p.reported.size()),
            p.spec.position_flags.empty() ? nullptr : p.spec.position_flags.data(),
            p.spec.eval_program.empty() ? nullptr : p.spec.eval_program.c_str(),
            p.reported.data()};
  return static_cast<int32_t>(programs_.size() - 1);
}

void ModelDesc::set_meaning_of_ids(const std::string& text) {
  constexpr size_t kMost = 150;  // bytes, so that a message shows all of it
  meaning_of_ids_.clear();
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    std::array<char, 5> escaped{c};
    if (byte < 0x20 || byte > 0x7e || c == '\\') std::snprintf(escaped.data(), escaped.size(), "\\x%02x", byte);
    meaning_of_ids_ += escaped.data();
  }
  if (meaning_of_ids_.size() > kMost) {
    std::array<char, 32> sum{};
    std::snprintf(sum.data(), sum.size(), "... XXH3 %016" PRIx64, checksum64(text.data(), text.size()));
    meaning_of_ids_ = meaning_of_ids_.substr(0, kMost - std::strlen(sum.data())) + sum.data();
  }
  desc_.struct_size = 0;  // get() makes it again
}

void ModelDesc::add_layout(std::string name, std::vector<int32_t> transposed, std::string refused) {
  Layout& l = layouts_.emplace_back();
  l.name = std::move(name);
  l.transposed = std::move(transposed);
  l.refused = std::move(refused);
  l.desc = {sizeof l.desc, static_cast<uint32_t>(l.transposed.size()), l.name.c_str(), l.transposed.data(),
            l.refused.empty() ? nullptr : l.refused.c_str()};
}

// Several threads may call it when all is added: then it writes nothing.
const ddh_model_desc& ModelDesc::get() {
  const bool is_current = desc_.struct_size != 0 && param_list_.size() == params_.size() &&
                          unit_list_.size() == units_.size() && program_list_.size() == programs_.size() &&
                          buffer_list_.size() == buffers_.size() && layout_list_.size() == layouts_.size();
  if (is_current) return desc_;
  param_list_.clear(), unit_list_.clear(), program_list_.clear(), buffer_list_.clear(), layout_list_.clear();
  for (const Buffer& b : buffers_) buffer_list_.push_back(&b.desc);
  for (const Param& p : params_) param_list_.push_back(&p.desc);
  for (const Unit& u : units_) unit_list_.push_back(&u.desc);
  for (const Program& p : programs_) program_list_.push_back(&p.desc);
  for (const Layout& l : layouts_) layout_list_.push_back(&l.desc);
  desc_ = {sizeof desc_,
           static_cast<uint32_t>(params_.size()),
           param_list_.data(),
           unit_list_.data(),
           buffer_list_.data(),
           program_list_.data(),
           static_cast<uint32_t>(units_.size()),
           static_cast<uint32_t>(buffers_.size()),
           static_cast<uint32_t>(programs_.size()),
           0,
           name_.c_str(),
           meaning_of_ids_.empty() ? nullptr : meaning_of_ids_.c_str(),
           layout_list_.data(),
           static_cast<uint32_t>(layouts_.size()),
           0};
  return desc_;
}

void Model::derive(int32_t /*program*/, const double* /*sums*/, const double* /*counts*/, double* /*values*/) {
  fail(DDH_INTERNAL, "the model reports derived metrics but does not override derive");
}

bool Model::contribution(uint32_t /*buffer*/, int32_t /*program*/, int32_t /*micro_batch*/, void* /*out*/) {
  fail(DDH_INTERNAL, "the model has folded buffers but does not override contribution");
}

void Model::gradient_block(const ddh_unit_call& /*unit_call*/, const ddh_grad_block& /*block*/) {
  fail(DDH_INTERNAL, "the model has parameters with a grad_block but does not override gradient_block");
}

const void* Model::interface(std::string_view id) const {
  static const ddh_model_api model_table = {
      sizeof(ddh_model_api),
      0,
      [](ddh_inst* i, const ddh_model_desc** out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = &self_as<Model>(i).describe(); });
      },
      [](ddh_inst* i, ddh_err* err) noexcept { return guard(err, [&] { self_as<Model>(i).prepare(); }); },
      [](ddh_inst* i, const ddh_batch_args* args, ddh_batch** out, ddh_batch_info* info, ddh_err* err) noexcept {
        return guard(err, [&] {
          ddh_batch_info mine{};
          *out = self_as<Model>(i).batch_create(copy_of(*args), mine);
          copy_out(mine, *info);
        });
      },
      [](ddh_inst* i, ddh_batch* batch) noexcept { self_as<Model>(i).batch_destroy(batch); },
      [](ddh_inst* i, const ddh_unit_call* unit_call, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Model>(i).forward(copy_of(*unit_call)); });
      },
      [](ddh_inst* i, const ddh_unit_call* unit_call, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Model>(i).backward(copy_of(*unit_call)); });
      },
      [](ddh_inst* i, int32_t program, int32_t micro_batch, double* sums, double* counts, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Model>(i).metrics(program, micro_batch, sums, counts); });
      },
      [](ddh_inst* i, int32_t micro_batch) noexcept { self_as<Model>(i).discard(micro_batch); },
      [](ddh_inst* i, int32_t program, const double* sums, const double* counts, double* values,
         ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Model>(i).derive(program, sums, counts, values); });
      },
      [](ddh_inst* i, uint32_t buffer, int32_t program, int32_t micro_batch, void* out, int32_t* given,
         ddh_err* err) noexcept {
        return guard(err, [&] { *given = self_as<Model>(i).contribution(buffer, program, micro_batch, out) ? 1 : 0; });
      },
      [](ddh_inst* i, const ddh_estimate_args* args, ddh_estimate* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          ddh_estimate mine{};
          if (!self_as<Model>(i).estimate(copy_of(*args), mine)) fail(DDH_NOT_FOUND, "this model makes no estimates");
          copy_out(mine, *out);
        });
      },
      [](ddh_inst* i, const ddh_unit_call* call, const ddh_grad_block* block, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Model>(i).gradient_block(copy_of(*call), copy_of(*block)); });
      },
  };
  static const ddh_sampler_api sampler_table = {
      sizeof(ddh_sampler_api),
      0,
      [](ddh_inst* i, const ddh_sample_args* args, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Model>(i).sampler_begin(copy_of(*args)); });
      },
      [](ddh_inst* i, ddh_batch** out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = self_as<Model>(i).sampler_next(); });
      },
      [](ddh_inst* i) noexcept { return self_as<Model>(i).sampler_text(); },
  };
  if (id == DDH_MODEL_IFACE) return &model_table;
  if (id == DDH_SAMPLER_IFACE && has_sampler()) return &sampler_table;
  return nullptr;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
