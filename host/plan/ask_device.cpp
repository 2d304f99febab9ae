// SPDX-License-Identifier: Apache-2.0
#include "plan/ask_device.hpp"

#include <algorithm>
#include <chrono>
#include <deque>

#include "base/child_process.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "config/config.hpp"
#include "ddh/kind/device.h"
#include "ddh/sdk/plugin.hpp"
#include "ddh/service/config.h"
#include "ddh/service/log.h"
#include "engine/calls/instance.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// What a device sees of the host here: the defaults of its options, and a log that nobody reads.
class AskingHost {
 public:
  explicit AskingHost(const ddh_desc& desc) {
    std::vector<Section> sections = host_sections();
    add_plugin_options(sections, "device", desc.config_schema, ddh::str("device '", desc.id, "'"));
    config_ = Config(UserConfig::read("", {}), sections);
  }
  AskingHost(const AskingHost&) = delete;
  AskingHost& operator=(const AskingHost&) = delete;
  [[nodiscard]] const ddh_host& host() const { return host_; }

 private:
  static AskingHost& of(void* h) { return *static_cast<AskingHost*>(h); }
  const char* keep(std::string text) { return texts_.emplace_back(std::move(text)).c_str(); }

  template <class T>
  static ddh_rc number(void* h, const char* key, T* out, ddh_err* err) noexcept {
    return ddh::guard(err, [&] { *out = of(h).config_.get<T>(key); });
  }
  static ddh_rc text(void* h, const char* key, const char** out, ddh_err* err) noexcept {
    return ddh::guard(err, [&] { *out = of(h).keep(of(h).config_.text(key)); });
  }
  template <class T, class Out, class Put>
  static ddh_rc list(void* h, const char* key, Out* out, uint32_t cap, uint32_t* n, ddh_err* err, Put put) noexcept {
    return ddh::guard(err, [&] {
      const auto values = of(h).config_.get<std::vector<T>>(key);
      for (size_t i = 0; i < std::min<size_t>(cap, values.size()); ++i) out[i] = put(values[i]);
      *n = static_cast<uint32_t>(values.size());
    });
  }

  static const void* interface_of_host(void* /*h*/, const char* id) noexcept {
    static const ddh_config_api config = {
        sizeof(ddh_config_api),
        0,
        number<int64_t>,
        number<double>,
        text,
        [](void* h, const char* key, double* out, uint32_t cap, uint32_t* n, ddh_err* err) noexcept {
          return list<double>(h, key, out, cap, n, err, [](double value) { return value; });
        },
        [](void*, const char*, const char*, const char**, ddh_err* err) noexcept {
          return ddh_fail(err, DDH_FAILED_PRECONDITION, "there are no ranks yet that could agree");
        },
        [](void* h, const char* key, const char** out, uint32_t cap, uint32_t* n, ddh_err* err) noexcept {
          return list<std::string>(h, key, out, cap, n, err,
                                   [&](const std::string& value) { return of(h).keep(value); });
        },
    };
    static const ddh_log_api log = {sizeof(ddh_log_api), 0, [](void*, int32_t, const char*) noexcept {}};
    const std::string_view wanted = id;
    if (wanted == DDH_CONFIG_IFACE) return &config;
    return wanted == DDH_LOG_IFACE ? &log : nullptr;
  }

  Config config_;
  std::deque<std::string> texts_;
  ddh_host host_{sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, this, interface_of_host};
};

// An instance that opens no device.
class AskedDevice {
 public:
  explicit AskedDevice(const Plugin& plugin)
      : host_(*plugin.desc),
        instance_(plugin, host_.host(), "device"),
        table_(instance_.require<ddh_device_api>(DDH_DEVICE_IFACE, DDH_DEVICE_API_MIN_SIZE)) {}

  [[nodiscard]] int present() const {
    int32_t count = 0;
    if (table_.present != nullptr) call("present", table_.present, &count);
    if (count < 0) ddh::fail(DDH_FAILED_PRECONDITION, "it says that ", count, " devices are present");
    return count;
  }
  [[nodiscard]] std::string instruction_set(const std::string& limit) const {
    const char* text = nullptr;
    if (table_.instruction_set != nullptr) call("instruction_set", table_.instruction_set, limit.c_str(), &text);
    return text == nullptr ? "" : plain_text(text, kShownValue);
  }

 private:
  template <class Function, class... Args>
  void call(const char* name, Function function, Args... args) const {
    ddh::ErrorBuffer err;
    const ddh_rc rc = function(instance_.get(), args..., err.get());
    if (rc == DDH_OK) return;
    const std::string text = err.text();
    throw ddh::Error(rc, text.empty() ? ddh::str(name, " failed and gave no reason") : text);
  }

  AskingHost host_;
  const Instance instance_;
  const ddh_device_api& table_;
};

Json as_json(const DeviceAnswer& answer) {
  return {{"plugin", answer.plugin},
          {"present", answer.present},
          {"instructions", answer.instructions},
          {"problem", answer.problem}};
}

// In the child.
Json answers_of(const fs::path& file, InterfaceLookup lookup, const std::string& limit) {
  Json answers = Json::array();
  const Library library = Library::load(file, lookup);
  for (uint32_t i = 0; i < library.module().n_desc; ++i) {
    const ddh_desc* const desc = library.module().desc[i];
    if (desc->kind != DDH_KIND_DEVICE) continue;
    DeviceAnswer answer{.plugin = desc->id};
    try {
      const AskedDevice device({&library.module(), desc, file});
      answer.present = device.present();
      answer.instructions = device.instruction_set(limit);
    } catch (const std::exception& error) {
      answer = {.plugin = desc->id, .problem = plain_text(sentence_of(error))};
    }
    answers.push_back(as_json(answer));
  }
  return answers;
}

}  // namespace

std::vector<DeviceAnswer> ask_devices(const fs::path& file, InterfaceLookup lookup, const std::string& limit) {
  constexpr std::chrono::seconds kLimit{5};
  DeviceAnswer none{.plugin = file.stem().string()};
  ChildProcess child("to ask '" + file.string() + "'", [&] {
    Json answers;
    try {
      answers = answers_of(file, lookup, limit);
    } catch (const std::exception& error) {
      none.problem = plain_text(sentence_of(error));
      answers = Json::array({as_json(none)});
    }
    return json_line(answers);
  });
  const std::optional<std::string> text = child.answer(ChildProcess::Clock::now() + kLimit);
  const Json answers = text ? Json::parse(*text, nullptr, /*allow_exceptions=*/false) : Json();
  if (!answers.is_array()) {
    none.problem = child.is_silent() ? "it ended the process that asked it"
                                     : ddh::str("it did not answer for ", kLimit.count(), " s");
    return {none};
  }
  std::vector<DeviceAnswer> out;
  for (const Json& answer : answers)
    out.push_back({answer.value("plugin", ""), answer.value("present", 0), answer.value("instructions", ""),
                   answer.value("problem", "")});
  return out;
}

std::string instructions_of_linked(const Plugin& device, const std::string& limit) {
  return AskedDevice(device).instruction_set(limit);
}

}  // namespace ddhost
