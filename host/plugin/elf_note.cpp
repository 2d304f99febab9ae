// SPDX-License-Identifier: Apache-2.0
//
// plugin/elf_note.cpp: reads ELF headers by hand. Every offset is checked against the file, because the file may be
// truncated; mapping it would then end in SIGBUS.
#include "plugin/elf_note.hpp"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/json.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "name this machine's ELF constant here"
#endif

const char* machine_name(uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "aarch64";
    case EM_386:
      return "32-bit x86";
    case EM_ARM:
      return "32-bit ARM";
    case EM_RISCV:
      return "RISC-V";
    case EM_PPC64:
      return "PowerPC";
    case EM_S390:
      return "s390";
    default:
      return "another kind of processor";
  }
}

// Thrown inside this file if an offset points beyond the end.
struct Torn {};

// A file that is read in blocks, only where needed: every rank reads the program and every plugin, and with debug
// information these have tens of megabytes.
class Image {
 public:
  Image(std::ifstream in, uint64_t bytes) : in_(std::move(in)), bytes_(bytes) {}

  template <class T>
  [[nodiscard]] T at(uint64_t offset) const {
    T value;
    std::memcpy(&value, span(offset, sizeof value).data(), sizeof value);
    return value;
  }
  void check(uint64_t offset, uint64_t bytes) const {
    if (offset > bytes_ || bytes > bytes_ - offset) throw Torn{};
  }
  [[nodiscard]] std::string span(uint64_t offset, uint64_t bytes) const {
    check(offset, bytes);
    if (offset < block_at_ || offset + bytes > block_at_ + block_.size()) read_block(offset, bytes);
    return block_.substr(offset - block_at_, bytes);
  }
  [[nodiscard]] std::string text(uint64_t offset) const {
    for (uint64_t bytes = 128; true; bytes *= 2) {
      const std::string part = span(offset, std::min(bytes, bytes_ - std::min(offset, bytes_)));
      const size_t end = part.find('\0');
      if (end != std::string::npos) return part.substr(0, end);
      if (part.size() < bytes) throw Torn{};
    }
  }
  [[nodiscard]] uint64_t size() const { return bytes_; }

 private:
  void read_block(uint64_t offset, uint64_t bytes) const {
    constexpr uint64_t kBlock = 4096;
    block_at_ = offset;
    block_.assign(std::min(std::max(bytes, kBlock), bytes_ - offset), '\0');
    in_.clear();
    in_.seekg(static_cast<std::streamoff>(offset));
    if (!in_.read(block_.data(), static_cast<std::streamsize>(block_.size()))) throw Torn{};
  }

  mutable std::ifstream in_;
  uint64_t bytes_;
  mutable uint64_t block_at_ = 0;
  mutable std::string block_;
};

std::vector<Elf64_Phdr> program_headers(const Image& image, const Elf64_Ehdr& header) {
  std::vector<Elf64_Phdr> list;
  for (uint16_t i = 0; i < header.e_phnum; ++i)
    list.push_back(image.at<Elf64_Phdr>(header.e_phoff + uint64_t{i} * sizeof(Elf64_Phdr)));
  for (const Elf64_Phdr& part : list)
    if (part.p_type == PT_LOAD) image.check(part.p_offset, part.p_filesz);
  return list;
}

// Offset in the file of a virtual address.
uint64_t file_offset(const std::vector<Elf64_Phdr>& parts, uint64_t address) {
  for (const Elf64_Phdr& part : parts)
    if (part.p_type == PT_LOAD && address >= part.p_vaddr && address - part.p_vaddr < part.p_filesz)
      return part.p_offset + (address - part.p_vaddr);
  throw Torn{};
}

void read_dynamic(const Image& image, const std::vector<Elf64_Phdr>& parts, ElfFacts& facts) {
  std::vector<uint64_t> offsets;
  std::optional<uint64_t> runpath;
  uint64_t strings = 0;
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type != PT_DYNAMIC) continue;
    for (uint64_t at = part.p_offset; at < part.p_offset + part.p_filesz; at += sizeof(Elf64_Dyn)) {
      const auto entry = image.at<Elf64_Dyn>(at);
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_NEEDED) offsets.push_back(entry.d_un.d_val);
      if (entry.d_tag == DT_RUNPATH) runpath = entry.d_un.d_val;
      if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
    }
  }
  for (const uint64_t offset : offsets) facts.needed.push_back(image.text(file_offset(parts, strings) + offset));
  if (runpath) facts.runpath = image.text(file_offset(parts, strings) + *runpath);
}

uint32_t number(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_number_unsigned() ? json[key].get<uint32_t>() : 0;
}

std::optional<PluginNote> parse_note(std::string_view description) {
  const Json json = Json::parse(description.substr(0, description.find('\0')), nullptr, false);
  if (!json.is_object() || !json.contains("abi") || !json["abi"].is_string()) return std::nullopt;
  PluginNote note;
  std::istringstream abi(json["abi"].get<std::string>());
  char dot = 0;
  abi >> note.abi_major >> dot >> note.abi_minor;
  note.min_host_minor = number(json, "min_host_minor");
  if (json.contains("libraries")) note.libraries = libraries_from(json["libraries"]);
  if (json.contains("headers") && json["headers"].is_string()) note.headers = json["headers"].get<std::string>();
  if (!json.contains("plugins") || !json["plugins"].is_string()) return note;
  std::istringstream plugins(json["plugins"].get<std::string>());
  for (std::string word; std::getline(plugins, word, ',');) {
    const size_t colon = word.find(':');
    if (colon != std::string::npos) note.plugins.push_back({word.substr(0, colon), word.substr(colon + 1)});
  }
  return note;
}

// The content of the note with this name and type; nullopt: there is none.
std::optional<std::string> find_note(const Image& image, const std::vector<Elf64_Phdr>& parts, std::string_view name,
                                     uint32_t type) {
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type != PT_NOTE) continue;
    const uint64_t align = part.p_align == 8 ? 8 : 4;
    const uint64_t end = part.p_offset + part.p_filesz;
    uint64_t at = part.p_offset;
    while (at + sizeof(Elf64_Nhdr) <= end) {
      const auto head = image.at<Elf64_Nhdr>(at);
      const uint64_t name_at = at + sizeof head;
      // Names are padded to the segment's alignment.
      const uint64_t text_at = at + (sizeof head + head.n_namesz + align - 1) / align * align;
      if (head.n_namesz == name.size() + 1 && head.n_type == type && image.text(name_at) == name)
        return image.span(text_at, head.n_descsz);
      at = text_at + (uint64_t{head.n_descsz} + align - 1) / align * align;
    }
  }
  return std::nullopt;
}

Image open_image(const fs::path& file) {
  std::error_code ec;
  if (!fs::exists(file, ec)) ddh::fail(DDH_NOT_FOUND, "there is no file '", file.string(), "'");
  if (!fs::is_regular_file(file, ec)) ddh::fail(DDH_INVALID_ARGUMENT, "'", file.string(), "' is not a file");
  errno = 0;
  std::ifstream in;
  in.rdbuf()->pubsetbuf(nullptr, 0);  // the image has its own buffer
  in.open(file, std::ios::binary);
  if (!in) ddh::fail(DDH_PERMISSION_DENIED, "'", file.string(), "' can't be read: ", std::strerror(errno));
  return {std::move(in), fs::file_size(file)};
}

// Fills in facts, or sets facts.problem.
void examine(const Image& image, ElfFacts& facts) {
  if (image.size() == 0) {
    facts.problem = "is empty";
    return;
  }
  if (image.size() < SELFMAG || image.span(0, SELFMAG) != ELFMAG) {
    facts.problem = "is not an ELF file, so not a shared library";
    return;
  }
  const auto ident = image.at<std::array<unsigned char, EI_NIDENT>>(0);
  if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB) {
    facts.problem = "is for another machine (not 64-bit little-endian); build it here";
    return;
  }
  const auto header = image.at<Elf64_Ehdr>(0);
  if (header.e_machine != kMachine) {
    facts.problem = ddh::str("is for another machine (", machine_name(header.e_machine), ", this one is ",
                             machine_name(kMachine), "); build it here");
    return;
  }
  if (header.e_type != ET_DYN) {
    facts.problem = "is an ELF file but not a shared library; link it with -shared";
    return;
  }
  const std::vector<Elf64_Phdr> parts = program_headers(image, header);
  image.check(header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize);
  if (const auto text = find_note(image, parts, "ddhost", 1)) {
    facts.note = parse_note(*text);
    if (!facts.note)
      facts.problem = "has a ddhost note that is not JSON; leave quotes and backslashes out of its texts";
  }
  if (const auto id = find_note(image, parts, "GNU", NT_GNU_BUILD_ID)) facts.build_id = *id;
  read_dynamic(image, parts, facts);
}

}  // namespace

ElfFacts read_elf(const fs::path& file) {
  const Image image = open_image(file);
  ElfFacts facts;
  try {
    examine(image, facts);
  } catch (const Torn&) {
    facts.problem = "is truncated or damaged (its headers point beyond its end); build or copy it again";
  }
  return facts;
}

}  // namespace ddhost
