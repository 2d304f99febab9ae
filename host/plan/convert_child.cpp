// SPDX-License-Identifier: Apache-2.0
#include "plan/convert_child.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>

#include "base/json.hpp"
#include "base/text.hpp"
#include "checkpoint/safetensors.hpp"
#include "ddh/kind/format.h"
#include "engine/calls/instance.hpp"
#include "plugin/library.hpp"

namespace fs = std::filesystem;

namespace ddhost {

struct ConvertRecord::Page {
  std::atomic<uint64_t> calls{0}, first_bytes{0};
  std::atomic<bool> is_in_call{false};
  std::array<char, 512> call{};
};

ConvertRecord::ConvertRecord() {
  void* const memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "a page of shared memory could not be made: ", std::strerror(errno),
              "; close other programs");
  page_ = new (memory) Page;
}
ConvertRecord::~ConvertRecord() { ::munmap(page_, sizeof(Page)); }

void ConvertRecord::begin(const std::string& call) {
  const size_t n = std::min(call.size(), page_->call.size() - 1);
  std::memcpy(page_->call.data(), call.data(), n);
  page_->call[n] = '\0';
  page_->calls.fetch_add(1);  // first, so that who sees the call sees a new number
  page_->is_in_call.store(true);
}
void ConvertRecord::end() {
  page_->is_in_call.store(false);
  page_->calls.fetch_add(1);
}
uint64_t ConvertRecord::calls() const { return page_->calls.load(); }
std::string ConvertRecord::call() const { return page_->is_in_call.load() ? page_->call.data() : ""; }
void ConvertRecord::set_first_bytes(uint64_t bytes) { page_->first_bytes.store(bytes); }
uint64_t ConvertRecord::first_bytes() const { return page_->first_bytes.load(); }

namespace {

constexpr uint32_t kMostTensors = 1U << 24, kMostDims = 64;
constexpr size_t kMostNotes = 1000;
constexpr uint64_t kPieceBytes = uint64_t{8} << 20;  // of one read

// The value of a line of /proc/<pid>/status in bytes; 0: it has no such line.
uint64_t status_bytes(const std::string& pid, std::string_view key) {
  std::ifstream in("/proc/" + pid + "/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ':')
      return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  return 0;
}

// During its lifetime.
class MemoryLimit {
 public:
  explicit MemoryLimit(uint64_t bytes) {
    ::getrlimit(RLIMIT_DATA, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, status_bytes("self", "VmData") + bytes);
    ::setrlimit(RLIMIT_DATA, &limit);
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  ~MemoryLimit() { ::setrlimit(RLIMIT_DATA, &before_); }

 private:
  rlimit before_{};
};

struct NoMemory : ddh::Error {
  using Error::Error;
};

// What a format sees of the host: the log, whose lines become notes.
class FormatHost {
 public:
  FormatHost() : host_{sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, this, interface_of_host} {}
  FormatHost(const FormatHost&) = delete;
  FormatHost& operator=(const FormatHost&) = delete;
  [[nodiscard]] const ddh_host& host() const { return host_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  static const void* interface_of(const char* id) {
    static const ddh_log_api log = {sizeof(ddh_log_api), 0, [](void* h, int32_t level, const char* text) noexcept {
                                      auto& notes = static_cast<FormatHost*>(h)->notes_;
                                      if (level > DDH_LOG_DEBUG && text != nullptr && notes.size() < kMostNotes)
                                        notes.push_back(plain_text(text));
                                    }};
    return std::string_view(id) == DDH_LOG_IFACE ? &log : nullptr;
  }

 private:
  static const void* interface_of_host(void* /*h*/, const char* id) noexcept { return interface_of(id); }

  ddh_host host_;
  std::vector<std::string> notes_;
};

// One format, whose calls are recorded.
class OpenFormat {
  template <class Body>
  auto recorded(const std::string& call, Body&& body) {
    struct End {
      ConvertRecord& record;
      ~End() { record.end(); }
    };
    record_.begin(call + " of " + name_);
    const End end{record_};
    return body();
  }

 public:
  OpenFormat(const Library& library, const ddh_desc& desc, const FormatHost& host, ConvertRecord& record)
      : record_(record), name_("format '" + plain_text(desc.id) + "'") {
    recorded("create", [&] {
      instance_ = Instance({&library.module(), &desc, library.file()}, host.host(), "format");
      table_ = &instance_.require<ddh_format_api>(DDH_FORMAT_IFACE, DDH_FORMAT_API_MIN_SIZE);
    });
  }

  OpenFormat(const OpenFormat&) = delete;
  OpenFormat& operator=(const OpenFormat&) = delete;
  ~OpenFormat() {
    recorded("destroy", [&] { instance_ = Instance(); });
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool matches(const std::string& path) {
    return recorded("matches", [&] { return table_->matches(instance_.get(), path.c_str()); }) == 1;
  }
  ddh_format_info open(const std::string& path) {
    ddh_format_info info{};
    info.struct_size = sizeof info;
    info.step = -1;
    call("open", table_->open, path.c_str(), &info);
    if (info.what == nullptr || !is_utf8(info.what)) blame("open", "it gives no text `what`");
    if (info.n_tensors > kMostTensors) blame("open", "it gives ", info.n_tensors, " tensors");
    if (info.step < -1) blame("open", "it gives step ", info.step);
    for (const char* text : {info.meaning_of_ids, info.other_step})
      if (text != nullptr && !is_utf8(text)) blame("open", "it gives a text that is not UTF-8");
    return info;
  }
  SafetensorsLayout::Item tensor(uint32_t index) {
    ddh_file_tensor t{};
    t.struct_size = sizeof t;
    const std::string of = ddh::str("tensor ", index);
    call(of.c_str(), table_->tensor, index, &t);
    const bool is_slot = t.role == DDH_TENSOR_SLOT;
    if (t.role != DDH_TENSOR_WEIGHT && !is_slot) blame(of, "its role is ", t.role, ", which this host does not know");
    if (t.name == nullptr || t.name[0] == '\0' || !is_utf8(t.name)) blame(of, "it has no name");
    if (is_slot && (t.slot == nullptr || t.slot[0] == '\0' || !is_utf8(t.slot))) blame(of, "its slot has no name");
    if (is_slot && std::string_view(t.slot).find('/') != std::string_view::npos)
      blame(of, "its slot '", t.slot, "' has a slash");
    if (t.n_dims > kMostDims || (t.n_dims > 0 && t.shape == nullptr)) blame(of, "it has ", t.n_dims, " dimensions");
    uint64_t bytes = ddh_dtype_bytes(t.dtype);
    if (bytes == 0) blame(of, "its dtype is ", t.dtype, ", which this host does not know");
    const std::vector<int64_t> shape(t.shape, t.shape + t.n_dims);
    for (const int64_t n : shape)
      if (n < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(n), &bytes))
        blame(of, "'", t.name, "' has the impossible shape ", ddh::shape_text(shape));
    if (bytes != t.bytes)
      blame(of, "'", t.name, "' has ", t.bytes, " bytes, but its shape ", ddh::shape_text(shape), " and dtype take ",
            bytes);
    const std::string name = is_slot ? ddh::str(kSlotPrefix, t.slot, "/", t.name) : ddh::str(kWeightPrefix, t.name);
    if (!names_.insert(name).second) blame(of, "there are two tensors '", t.name, "' of one role");
    return {name, t.dtype, shape};
  }
  void read(uint32_t index, const std::string& tensor, uint64_t offset, uint64_t bytes, char* dst) {
    call("read of '" + tensor.substr(tensor.find('/') + 1) + "'", table_->read, index, offset, bytes,
         static_cast<void*>(dst));
  }

 private:
  // The plugin's own sentence is about the user's file.
  template <class Function, class... Args>
  void call(const std::string& what, Function function, Args... args) {
    CallError error;
    const ddh_rc rc = recorded(what, [&] { return function(instance_.get(), args..., error.get()); });
    if (rc == DDH_OK) return;
    const std::string text = error.text();
    if (rc == DDH_RESOURCE_EXHAUSTED) throw NoMemory(rc, name_ + ", " + what + ": no memory is left");
    if (text.empty()) blame(what, "it fails with ", code_name(rc), " and gives no reason");
    throw ddh::Error(rc, text);
  }
  template <class... Parts>
  [[noreturn]] void blame(const std::string& call, const Parts&... parts) const {
    ddh::fail(DDH_FAILED_PRECONDITION, name_, ", ", call, ": ", ddh::str(parts...), "; fix '",
              instance_.plugin().file.string(), "'");
  }

  ConvertRecord& record_;
  const std::string name_;
  Instance instance_;
  const ddh_format_api* table_ = nullptr;
  std::set<std::string> names_;
};

struct LoadedFormat {
  const Library* library;
  const ddh_desc* desc;
};

// The formats of a file. `libraries` keeps it.
std::vector<LoadedFormat> load_formats(const Choice& choice, std::vector<std::unique_ptr<const Library>>& libraries,
                                       ConvertRecord& record) {
  record.begin("loading of '" + choice.file + "'");
  libraries.push_back(std::make_unique<const Library>(Library::load(choice.file, FormatHost::interface_of)));
  record.end();
  std::vector<LoadedFormat> out;
  const ddh_module& module = libraries.back()->module();
  for (uint32_t i = 0; i < module.n_desc; ++i)
    if (module.desc[i]->kind == DDH_KIND_FORMAT && (choice.id.empty() || choice.id == module.desc[i]->id))
      out.push_back({libraries.back().get(), module.desc[i]});
  return out;
}

Json write(OpenFormat& format, const ConvertTask& task, const RangeFile& out) {
  const ddh_format_info info = format.open(task.path.string());
  std::vector<SafetensorsLayout::Item> items;
  std::vector<uint32_t> indices;
  for (uint32_t i = 0; i < info.n_tensors; ++i) {
    SafetensorsLayout::Item item = format.tensor(i);
    if (task.weights_only && !item.name.starts_with(kWeightPrefix)) continue;
    items.push_back(std::move(item));
    indices.push_back(i);
  }
  const std::string meaning = info.meaning_of_ids == nullptr ? "" : info.meaning_of_ids;
  const SafetensorsLayout layout(items, weights_metadata(meaning));
  out.reserve(layout.file_bytes);
  out.write_at(0, layout.header.data(), layout.header.size());
  std::vector<char> piece(std::min(kPieceBytes, layout.file_bytes));
  for (size_t i = 0; i < items.size(); ++i) {
    const uint64_t begin = layout.file_offsets[i];
    const uint64_t end = i + 1 < items.size() ? layout.file_offsets[i + 1] : layout.file_bytes;
    for (uint64_t at = begin; at < end; at += kPieceBytes) {
      const uint64_t n = std::min(kPieceBytes, end - at);
      format.read(indices[i], items[i].name, at - begin, n, piece.data());
      out.write_at(at, piece.data(), n);
    }
  }
  return {{"what", plain_text(info.what)},
          {"step", info.step},
          {"other_step", info.other_step == nullptr ? "" : info.other_step},
          {"format", format.name()}};
}

// Runs body(host, libraries) under the memory limit; failures become the answer.
template <class Body>
std::string answered(uint64_t memory_bytes, ConvertRecord& record, Body&& body) {
  Json answer;
  FormatHost host;
  std::vector<std::unique_ptr<const Library>> libraries;
  try {
    record.set_first_bytes(std::max<uint64_t>(1, anonymous_bytes(::getpid())));
    const MemoryLimit limit(memory_bytes);
    answer = body(host, libraries);
  } catch (const NoMemory& error) {
    answer = {{"code", error.code()}, {"sentence", plain_text(error.what())}, {"is_memory", true}};
  } catch (const ddh::Error& error) {
    answer = {{"code", error.code()}, {"sentence", plain_text(error.what())}};
  } catch (const std::bad_alloc&) {
    answer = {{"code", DDH_RESOURCE_EXHAUSTED}, {"sentence", "no memory is left"}, {"is_memory", true}};
  } catch (const std::exception& error) {
    answer = {{"code", DDH_INTERNAL}, {"sentence", sentence_of(error)}};
  }
  answer["notes"] = host.notes();
  return json_line(answer);
}

}  // namespace

uint64_t anonymous_bytes(pid_t pid) {
  const std::string id = std::to_string(pid);
  return status_bytes(id, "RssAnon") + status_bytes(id, "RssShmem");
}

std::string recognize_in_child(const fs::path& path, const std::vector<Choice>& formats, bool is_native,
                               uint64_t memory_bytes, ConvertRecord& record) {
  return answered(memory_bytes, record, [&](FormatHost& host, auto& libraries) {
    Json found = Json::object();
    std::string names = is_native ? "safetensors" : "";
    for (const Choice& choice : formats) {
      for (const LoadedFormat& loaded : load_formats(choice, libraries, record)) {
        OpenFormat format(*loaded.library, *loaded.desc, host, record);
        if (!format.matches(path.string())) continue;
        if (!names.empty())
          ddh::fail(
              DDH_INVALID_ARGUMENT, "'", path.string(), "' is of two formats, ", names, " and ", format.name(),
              ", so it is not clear which to read; name a file in it, or choose one (run.format; --format of ckpt "
              "import)");
        names = format.name();
        found = {{"file", choice.file}, {"id", loaded.desc->id}};
      }
    }
    return found;
  });
}

std::string convert_in_child(const ConvertTask& task, const RangeFile& out, ConvertRecord& record) {
  return answered(task.memory_bytes, record, [&](FormatHost& host, auto& libraries) {
    const std::vector<LoadedFormat> formats = load_formats(task.format, libraries, record);
    if (formats.empty())
      ddh::fail(DDH_INVALID_ARGUMENT, "'", task.format.file, "' holds no format",
                task.format.id.empty() ? "" : " '" + task.format.id + "'",
                "; choose a format (`ddhost list`), or leave the choice to auto");
    if (formats.size() > 1)
      ddh::fail(DDH_INVALID_ARGUMENT, "'", task.format.file, "' holds ", formats.size(),
                " formats; name one of them as path:id");
    OpenFormat format(*formats.front().library, *formats.front().desc, host, record);
    return write(format, task, out);
  });
}

}  // namespace ddhost
