// SPDX-License-Identifier: Apache-2.0
//
// The parts of plugin.hpp that need no template: the host's tables, options, tagged memory, checks of structs.
#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

void ErrorBuffer::check(ddh_rc rc) const {
  if (rc != DDH_OK) throw Error(rc, text_[0] != '\0' ? text_ : str("call failed with code ", rc));
}

void no_such_service(const char* id) {
  fail(DDH_FAILED_PRECONDITION, "the plugin calls the service '", id,
       "', which it does not get: its descriptor lists it neither in `needs` nor in `wants`, or its kind has no such "
       "service, ",
       "or the run has none; fix the plugin");
}

Host::Host(const ddh_host* host)
    : h(host->h),
      log_(host, DDH_LOG_IFACE),
      config(host, DDH_CONFIG_IFACE),
      alloc(host, DDH_ALLOC_IFACE),
      stream(host, DDH_STREAM_IFACE),
      copy(host, DDH_COPY_IFACE),
      flatops(host, DDH_FLATOPS_IFACE),
      comm(host, DDH_COMM_IFACE),
      window(host, DDH_WINDOW_IFACE),
      optim(host, DDH_OPTIM_IFACE),
      own_optim(host, DDH_OWN_OPTIM_IFACE),
      kv(host, DDH_KV_IFACE),
      metrics(host, DDH_METRICS_IFACE),
      params(host, DDH_PARAMS_IFACE),
      kernels(host, DDH_KERNELS_IFACE),
      codecs(host, DDH_CODECS_IFACE) {}

template <class T, class Getter>
std::optional<T> Host::get_if_given(Getter getter, const char* key) const {
  T value{};
  ErrorBuffer none;
  const ddh_rc rc = getter(h, key, &value, none.get());
  if (rc == DDH_INVALID_ARGUMENT) return std::nullopt;  // null is not a number
  none.check(rc);
  return value;
}

std::optional<int64_t> Host::i64_if_given(const char* key) const { return get_if_given<int64_t>(config->get_i64, key); }
std::optional<double> Host::f64_if_given(const char* key) const { return get_if_given<double>(config->get_f64, key); }

Buffer::Buffer(const Host& host, int32_t tag, uint64_t bytes, const std::string& name, uint32_t flags, int32_t memory)
    : host_(&host), bytes_(bytes) {
  const ddh_alloc_args args{sizeof(ddh_alloc_args), tag, bytes, memory, flags, name.c_str()};
  call(host.alloc->allocate, host.h, &args, &data_);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer(std::move(other)).swap(*this);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) host_->alloc->release(host_->h, data_);
}

void Buffer::swap(Buffer& other) noexcept {
  std::swap(host_, other.host_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
}

void detail::check_size(const void* args, uint32_t given, size_t known, uint32_t min_size, const char* name) {
  if (given < min_size)
    fail(DDH_INVALID_ARGUMENT, name, ".struct_size is ", given, ", but at least ", min_size,
         " is needed; set it to sizeof(", name, ")");
  if (given > kMaxStructBytes)
    fail(DDH_INVALID_ARGUMENT, name, ".struct_size is ", given, ", which no version has; set it to sizeof(", name, ")");
  const auto* bytes = static_cast<const unsigned char*>(args);
  for (size_t i = known; i < given; ++i)
    if (bytes[i] != 0)
      fail(DDH_UNIMPLEMENTED, name, " is of a newer version: byte ", i, " is set, but this build knows ", known,
           " bytes of it; update ddhost, or build both sides with the same SDK");
}

void detail::check_bits(const void* args, const KnownBits& known, const char* name) {
  uint32_t value = 0;
  std::memcpy(&value, static_cast<const char*>(args) + known.offset, sizeof value);
  if ((value & ~known.bits) == 0) return;
  if (known.bits == 0) fail(DDH_UNIMPLEMENTED, name, ".", known.field, " is ", value, "; it is reserved and must be 0");
  fail(DDH_UNIMPLEMENTED, name, ".", known.field, " is ", value, ", of which the bits ", value & ~known.bits,
       " are unknown to this build; update ddhost, or leave them out");
}

Span::Span(const Host& host, int32_t kind, const char* name) : host_(host) {
  if (host_.metrics != nullptr) host_.metrics->span_begin(host_.h, kind, name);
}

Span::~Span() {
  if (host_.metrics != nullptr) host_.metrics->span_end(host_.h);
}

Instance::Instance(const ddh_create& create)
    : host(create.host), options(host, create.section == nullptr ? "" : create.section) {}

const void* instance_interface(ddh_inst* inst, const char* id) noexcept {
  return reinterpret_cast<Instance*>(inst)->interface(id);
}

void destroy_instance(ddh_inst* inst) noexcept { std::unique_ptr<Instance>(reinterpret_cast<Instance*>(inst)).reset(); }

}  // namespace DDH_HIDDEN
}  // namespace ddh
