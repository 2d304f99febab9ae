// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/plugin.hpp: the C++ side of ddh/abi.h. A plugin derives a class from Strategy, Optimizer, Model, Schedule,
// Monitor, Format, Codec, Device (see the headers of that name) or CommBackend (comm.hpp), throws ddh::Error if something
// fails, and ends its file with DDH_CXX_PLUGIN.
//
// Templates are in this header, other functions in the static library ddhost::sdk. Symbols are hidden and in a
// versioned namespace, so two plugins that were built with different SDKs never share code.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "ddh/ddh.h"
#include "ddh/sdk/structs.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Concatenates its arguments: str("rank ", 3) == "rank 3".
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// A failure that crosses the boundary as a code and a message.
class Error : public std::runtime_error {
 public:
  Error(ddh_rc code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  [[nodiscard]] ddh_rc code() const { return code_; }

 private:
  ddh_rc code_;
};

// Throws Error: fail(DDH_NOT_FOUND, "no file '", path, "'; give data.path").
template <class... Parts>
[[noreturn]] void fail(ddh_rc code, const Parts&... parts) {
  throw Error(code, str(parts...));
}

// Runs `body` at the boundary: no exception leaves it, and each becomes a code and a message in `err`.
template <class Body>
ddh_rc guard(ddh_err* err, Body&& body) noexcept {
  try {
    body();
    return DDH_OK;
  } catch (const Error& e) {
    return ddh_fail(err, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return ddh_fail(err, DDH_RESOURCE_EXHAUSTED, "out of memory; use a smaller model, a smaller batch or more ranks");
  } catch (const std::exception& e) {
    return ddh_fail(err, DDH_INTERNAL, e.what());
  } catch (...) {
    return ddh_fail(err, DDH_INTERNAL, "unknown exception");
  }
}

// A ddh_err with a message buffer; check() turns a failed call into an Error.
class ErrorBuffer {
 public:
  ErrorBuffer() : err_{sizeof(ddh_err), 0, sizeof text_, 0, text_} { text_[0] = '\0'; }
  ErrorBuffer(const ErrorBuffer&) = delete;
  ErrorBuffer& operator=(const ErrorBuffer&) = delete;
  ddh_err* get() { return &err_; }
  [[nodiscard]] const char* text() const { return text_; }
  void check(ddh_rc rc) const;

 private:
  ddh_err err_;
  char text_[1024];
};

// Calls a table's function with a trailing ddh_err* and throws Error on failure:
//   call(comm->barrier, h, group);
template <class Function, class... Args>
void call(Function function, Args&&... args) {
  ErrorBuffer err;
  err.check(function(std::forward<Args>(args)..., err.get()));
}

// Throws: the plugin calls a service that it does not get.
[[noreturn]] void no_such_service(const char* id);

// A service of the host. It is asked for when it is used first, because the host logs a plugin that asks for a service that
// its descriptor does not list. Compares equal to nullptr if the plugin does not get it.
template <class Table>
class Service {
 public:
  Service(const ddh_host* host, const char* id) : host_(host), id_(id) {}
  // NOLINTNEXTLINE(google-explicit-constructor): it stands for the pointer
  operator const Table*() const {
    const Table* table = table_.load(std::memory_order_relaxed);
    if (table != nullptr) return table;
    table = static_cast<const Table*>(host_->get_interface(host_->h, id_));
    table_.store(table, std::memory_order_relaxed);
    return table;
  }
  // Throws Error if the plugin does not get it.
  const Table* operator->() const {
    const Table* const table = *this;
    if (table == nullptr) no_such_service(id_);
    return table;
  }

 private:
  const ddh_host* const host_;
  const char* const id_;
  mutable std::atomic<const Table*> table_ = nullptr;
};

// This rank's host. Services that the descriptor `needs` are never null.
class Host {
 public:
  explicit Host(const ddh_host* host);

  template <class... Parts>
  void log(int32_t level, const Parts&... parts) const {
    if (log_ != nullptr) log_->write(h, level, str(parts...).c_str());
  }

  // Values of the effective configuration. They throw Error if the key or the type is wrong.
  [[nodiscard]] int64_t i64(const char* key) const { return get<int64_t>(config->get_i64, key); }
  [[nodiscard]] double f64(const char* key) const { return get<double>(config->get_f64, key); }
  // The value of an option that may be null; nullopt: it is null.
  [[nodiscard]] std::optional<int64_t> i64_if_given(const char* key) const;
  [[nodiscard]] std::optional<double> f64_if_given(const char* key) const;
  [[nodiscard]] bool flag(const char* key) const { return i64(key) != 0; }
  [[nodiscard]] std::string text(const char* key) const { return get<const char*>(config->get_str, key); }

 private:
  template <class T, class Getter>
  T get(Getter getter, const char* key) const {
    T value{};
    call(getter, h, key, &value);
    return value;
  }
  template <class T, class Getter>
  std::optional<T> get_if_given(Getter getter, const char* key) const;

 public:
  void* const h;  // first argument of every table function

 private:
  const Service<ddh_log_api> log_;

 public:
  const Service<ddh_config_api> config;
  const Service<ddh_alloc_api> alloc;
  const Service<ddh_stream_api> stream;
  const Service<ddh_copy_api> copy;
  const Service<ddh_flatops_api> flatops;
  const Service<ddh_comm_api> comm;
  const Service<ddh_window_api> window;
  const Service<ddh_optim_api> optim;
  const Service<ddh_own_optim_api> own_optim;
  const Service<ddh_kv_api> kv;
  const Service<ddh_metrics_api> metrics;
  const Service<ddh_params_api> params;
  const Service<ddh_kernels_api> kernels;
  const Service<ddh_codecs_api> codecs;
};

// The options of one instance. A plugin passes only the option's name ("lr"), because the section differs between
// instances ("optimizer", "optimizer_kg"). Error: the name or the type is wrong.
class SectionOptions {
 public:
  SectionOptions(const Host& host, std::string section) : host_(host), section_(std::move(section)) {}

  // The full name of an option, for error sentences: "optimizer_kg.lr" for "lr".
  [[nodiscard]] std::string key(std::string_view name) const { return section_ + "." + std::string(name); }
  [[nodiscard]] int64_t i64(std::string_view name) const { return host_.i64(key(name).c_str()); }
  [[nodiscard]] double f64(std::string_view name) const { return host_.f64(key(name).c_str()); }
  [[nodiscard]] std::optional<int64_t> i64_if_given(std::string_view name) const {
    return host_.i64_if_given(key(name).c_str());
  }
  [[nodiscard]] std::optional<double> f64_if_given(std::string_view name) const {
    return host_.f64_if_given(key(name).c_str());
  }
  [[nodiscard]] bool flag(std::string_view name) const { return host_.flag(key(name).c_str()); }
  [[nodiscard]] std::string text(std::string_view name) const { return host_.text(key(name).c_str()); }
  // An array of exactly N numbers.
  template <size_t N>
  [[nodiscard]] std::array<double, N> f64s(std::string_view name) const {
    std::array<double, N> values{};
    uint32_t n = 0;
    call(host_.config->get_f64s, host_.h, key(name).c_str(), values.data(), static_cast<uint32_t>(N), &n);
    if (n != N) fail(DDH_INVALID_ARGUMENT, key(name), " has ", n, " numbers; give ", N);
    return values;
  }

 private:
  const Host& host_;
  const std::string section_;
};

// Memory from ddh.alloc, released with the object.
class Buffer {
 public:
  Buffer() = default;
  // `tag`: DDH_TAG_* of the memory. `name`: for reports. `flags`: DDH_ALLOC_*. `memory`: DDH_MEM_*.
  Buffer(const Host& host, int32_t tag, uint64_t bytes, const std::string& name, uint32_t flags = DDH_ALLOC_ZERO,
         int32_t memory = DDH_MEM_DEVICE);
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] float* f32() const { return static_cast<float*>(data_); }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept;
  const Host* host_ = nullptr;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

namespace detail {
// The checks of copy_of that need no type. `args` has `given` bytes; this build knows the first `known`.
void check_size(const void* args, uint32_t given, size_t known, uint32_t min_size, const char* name);
void check_bits(const void* args, const KnownBits& known, const char* name);
}  // namespace detail

// A copy of a struct whose version may be older or newer than this build's. Missing fields are zero, and struct_size is
// this build's. Error: it is too short, or sets something unknown or reserved.
template <class T>
T copy_of(const T& args) {
  using Rule = StructRule<T>;
  detail::check_size(&args, args.struct_size, sizeof(T), Rule::min_size, Rule::name);
  T out{};
  std::memcpy(&out, &args, std::min<size_t>(args.struct_size, sizeof out));
  out.struct_size = sizeof out;
  for (const KnownBits& known : Rule::known_bits) detail::check_bits(&out, known, Rule::name);
  return out;
}
template <class T>
T copy_of(const T* args) {
  if (args == nullptr) fail(DDH_INVALID_ARGUMENT, "a ", StructRule<T>::name, " is NULL; pass one");
  return copy_of(*args);
}

// Writes a result to a caller's struct, which may be shorter or longer than this build's. Fields that do not fit are
// left out; fields that this build does not know are not changed. `out.struct_size` is the caller's. Error: it is not
// set.
template <class T>
void copy_out(T mine, T& out) {
  using Rule = StructRule<T>;
  if (out.struct_size < Rule::min_size || out.struct_size > kMaxStructBytes)
    fail(DDH_INVALID_ARGUMENT, Rule::name, ".struct_size is ", out.struct_size, " where a result is wanted; set it to ",
         "sizeof(", Rule::name, ") before the call");
  mine.struct_size = out.struct_size;
  std::memcpy(&out, &mine, std::min<size_t>(out.struct_size, sizeof mine));
}

// Counts the time of the enclosing scope under `kind`, one of DDH_SPAN_*. `name` is a literal.
class Span {
 public:
  Span(const Host& host, int32_t kind, const char* name);
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span();

 private:
  const Host& host_;
};

// Base of every C++ plugin instance; ddh_inst* is a pointer to it.
class Instance {
 public:
  explicit Instance(const ddh_create& create);
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  virtual ~Instance() = default;
  // The table for an interface id, or nullptr.
  [[nodiscard]] virtual const void* interface(std::string_view id) const = 0;

  const Host host;
  const SectionOptions options;  // of its own section; `host` also reads the keys that ddh/service/config.h lists
};

// Services that each kind gets and most plugins use.
inline constexpr const char* kUsualWants[] = {DDH_CONFIG_IFACE, DDH_LOG_IFACE, DDH_METRICS_IFACE, nullptr};

// What follows CAPS in DDH_CXX_PLUGIN: the rest of ddh_desc, where it is documented.
struct Traits {
  uint64_t uses = 0, understands = 0;
  const char* const* native_apis = nullptr;
  const char* const* wants = kUsualWants;
  const char *vendor = nullptr, *url = nullptr, *license = nullptr;
  const char *const *uses_ids = nullptr, *const *understands_ids = nullptr;
  uint32_t state_version = 0, oldest_state_version = 0;
};

constexpr ddh_desc make_desc(int32_t kind, const char* id, const char* version, const char* summary,
                             const char* const* needs, const char* schema, uint64_t caps, const Traits& traits) {
  return {sizeof(ddh_desc),
          kind,
          id,
          version,
          summary,
          needs,
          traits.wants,
          schema,
          caps,
          traits.uses,
          traits.understands,
          traits.native_apis,
          traits.vendor,
          traits.url,
          traits.license,
          traits.uses_ids,
          traits.understands_ids,
          traits.state_version,
          traits.oldest_state_version};
}

// The words of kinds: kKind_strategy is DDH_KIND_STRATEGY.
#define DDH_KIND_CONSTANT_(WORD, KIND, IFACE) inline constexpr int32_t kKind_##WORD = KIND;
DDH_KINDS(DDH_KIND_CONSTANT_)
#undef DDH_KIND_CONSTANT_

template <class T>
T& self_as(ddh_inst* inst) {
  return static_cast<T&>(*reinterpret_cast<Instance*>(inst));
}

template <class T>
ddh_rc create_instance(const ddh_create* args, ddh_inst** out, ddh_err* err) noexcept {
  return guard(err, [&] {
    *out = reinterpret_cast<ddh_inst*>(static_cast<Instance*>(std::make_unique<T>(copy_of(args)).release()));
  });
}
const void* instance_interface(ddh_inst* inst, const char* id) noexcept;
void destroy_instance(ddh_inst* inst) noexcept;

}  // namespace DDH_HIDDEN
}  // namespace ddh

// Ends the file of a plugin. CLASS is the instance type, KIND one of the words of DDH_KINDS, ID the name for users, NEEDS a
// NULL-terminated list of the host's services that it calls. After CAPS the fields of ddh::Traits may follow, in order or by
// name.
//   DDH_CXX_PLUGIN(Zero1, strategy, "zero1", "1.0.0", "optimizer state sharded", kSchema, kNeeds, caps, 0, features);
//   DDH_CXX_PLUGIN(Mine, optimizer, "mine", "1.0.0", "...", kSchema, kNeeds, caps, .vendor = "org.example");
#define DDH_CXX_PLUGIN(CLASS, KIND, ID, VERSION, SUMMARY, SCHEMA, NEEDS, CAPS, ...)                           \
  static const ddh_build ddh_build_ = DDH_BUILD_INIT;                                                         \
  static const ddh_desc ddh_desc_ =                                                                           \
      ddh::make_desc(ddh::kKind_##KIND, ID, VERSION, SUMMARY, NEEDS, SCHEMA, CAPS, ddh::Traits{__VA_ARGS__}); \
  static const ddh_desc* const ddh_descs_[] = {&ddh_desc_};                                                   \
  static const ddh_module ddh_module_ = {                                                                     \
      sizeof(ddh_module),   1, ddh_descs_, &ddh_build_, ddh::create_instance<CLASS>, ddh::instance_interface, \
      ddh::destroy_instance};                                                                                 \
  DDH_PLUGIN(ddh_module_, #KIND ":" ID)
