// SPDX-License-Identifier: Apache-2.0
#include "survey/facts.hpp"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "base/text.hpp"
#include "ddh/sdk/memory/free_memory.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/kv.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

uint64_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 ? static_cast<uint64_t>(limit.rlim_cur) : 0;
}

std::string text_of_file(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// A file that nobody else sees.
Fd nameless_file(const fs::path& folder) {
  Fd file(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (file.get() >= 0) return file;
  std::string name = (folder / ".ddhost-XXXXXX").string();  // this file system has no files without a name
  file = Fd(::mkostemp(name.data(), O_CLOEXEC));
  if (file.get() < 0)
    ddh::fail(DDH_PERMISSION_DENIED, "'", folder.string(), "' can't be written: ", std::strerror(errno));
  ::unlink(name.c_str());
  return file;
}

}  // namespace

Json to_json(const FactsWanted& wanted) {
  return {{"folder", wanted.folder.string()},
          {"mark", wanted.mark.string()},
          {"mark_text", wanted.mark_text},
          {"plugins", wanted.plugins},
          {"files", wanted.files}};
}

FactsWanted facts_wanted(const Json& json) {
  return {json.at("folder").get<std::string>(), json.at("mark").get<std::string>(),
          json.at("mark_text").get<std::string>(), json.at("plugins").get<std::vector<std::string>>(),
          json.at("files").get<std::vector<std::string>>()};
}

Facts own_facts(const FactsWanted& wanted) {
  const AgentIdentity me = own_identity();
  Facts facts;
  facts.host = me.host;
  facts.program = me.program;
  facts.program_hash = hash_of_file("/proc/self/exe");
  facts.cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  facts.memory = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  facts.free_memory = ddh::free_memory().bytes;
  facts.open_files = limit_of(RLIMIT_NOFILE);
  const uint64_t locked = limit_of(RLIMIT_MEMLOCK);
  facts.locked_memory = locked == RLIM_INFINITY ? "unlimited" : bytes_text(locked);
  std::error_code ec;
  facts.has_folder = fs::is_directory(wanted.folder, ec);
  facts.sees_mark = wanted.mark.empty() || text_of_file(wanted.mark) == wanted.mark_text;
  for (const std::string& file : wanted.plugins) facts.hashes.push_back(hash_of_file(file));
  for (const std::string& file : wanted.files) facts.has_file.push_back(fs::exists(file, ec));
  return facts;
}

Json to_json(const Facts& facts) {
  return {{"host", facts.host},
          {"program", facts.program},
          {"program_sha256", facts.program_hash},
          {"cores", facts.cores},
          {"memory_bytes", facts.memory},
          {"free_memory_bytes", facts.free_memory},
          {"open_files", facts.open_files},
          {"locked_memory", facts.locked_memory},
          {"has_folder", facts.has_folder},
          {"sees_mark", facts.sees_mark},
          {"plugins_sha256", facts.hashes},
          {"has_file", facts.has_file}};
}

Facts facts_of(const Json& json) {
  Facts facts;
  facts.host = plain_text(json.at("host").get<std::string>(), 100);
  facts.program = plain_text(json.at("program").get<std::string>(), 100);
  facts.program_hash = json.at("program_sha256").get<std::string>();
  facts.cores = json.at("cores").get<int64_t>();
  facts.memory = json.at("memory_bytes").get<uint64_t>();
  facts.free_memory = json.at("free_memory_bytes").get<uint64_t>();
  facts.open_files = json.at("open_files").get<uint64_t>();
  facts.locked_memory = plain_text(json.at("locked_memory").get<std::string>(), 100);
  facts.has_folder = json.at("has_folder").get<bool>();
  facts.sees_mark = json.at("sees_mark").get<bool>();
  facts.hashes = json.at("plugins_sha256").get<std::vector<std::string>>();
  facts.has_file = json.at("has_file").get<std::vector<bool>>();
  return facts;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string hash_of_file(const fs::path& file) {
  const Fd in(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(::EVP_MD_CTX_new(), ::EVP_MD_CTX_free);
  if (in.get() < 0 || context == nullptr || ::EVP_DigestInit_ex(context.get(), ::EVP_sha256(), nullptr) != 1) return "";
  std::vector<char> part(size_t{1} << 20);
  ssize_t n = 0;
  while ((n = ::read(in.get(), part.data(), part.size())) > 0)
    ::EVP_DigestUpdate(context.get(), part.data(), static_cast<size_t>(n));
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  if (n < 0 || ::EVP_DigestFinal_ex(context.get(), digest.data(), &length) != 1) return "";
  return hex_text({digest.data(), length});
}

fs::path existing_folder(fs::path path) {
  std::error_code ec;
  path = fs::absolute(path, ec);
  while (!fs::is_directory(path, ec) && path.has_relative_path()) path = path.parent_path();
  return path;
}

double write_rate(const fs::path& folder) {
  constexpr size_t kPart = size_t{4} << 20, kPieces = 8;
  const Fd file = nameless_file(folder);
  const std::vector<char> part(kPart, 'x');
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < kPieces; ++i)
    for (size_t done = 0; done < kPart;) {
      const ssize_t n = ::write(file.get(), part.data() + done, kPart - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) ddh::fail(DDH_RESOURCE_EXHAUSTED, "'", folder.string(), "' can't be written: ", std::strerror(errno));
      done += static_cast<size_t>(n);
    }
  ::fdatasync(file.get());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(kPart * kPieces) / took.count();
}

}  // namespace ddhost
