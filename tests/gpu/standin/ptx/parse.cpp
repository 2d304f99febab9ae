// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/ptx/parse.cpp: from the text of PTX to instructions.
#include <algorithm>
#include <cctype>
#include <sstream>

#include "ptx/words.hpp"

namespace standin::ptx {
namespace {

std::string trimmed(std::string text) {
  const auto blank = [](unsigned char c) { return std::isspace(c) != 0; };
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), blank));
  text.erase(std::find_if_not(text.rbegin(), text.rend(), blank).base(), text.end());
  return text;
}

// Pieces between commas. Braces (vectors) and blanks are dropped; what is in brackets stays whole.
std::vector<std::string> operands_of(const std::string& text) {
  std::vector<std::string> out;
  std::string piece;
  for (const char c : text) {
    if (c == ',') {
      out.push_back(piece);
      piece.clear();
    } else if (c != '{' && c != '}' && std::isspace(static_cast<unsigned char>(c)) == 0) {
      piece += c;
    }
  }
  if (!piece.empty()) out.push_back(piece);
  return out;
}

std::vector<std::string> words_of(const std::string& head) {
  std::vector<std::string> out;
  std::istringstream in(head);
  for (std::string word; std::getline(in, word, '.');) out.push_back(word);
  return out;
}

class Parser {
 public:
  Module run(const std::string& text) {
    std::istringstream in(text);
    for (std::string raw; std::getline(in, raw);) {
      ++line_;
      if (const size_t comment = raw.find("//"); comment != std::string::npos) raw.resize(comment);
      if (const size_t nul = raw.find('\0'); nul != std::string::npos) raw.resize(nul);
      std::string line = trimmed(raw);
      if (!line.empty()) take_line(line);
    }
    if (in_body_) fail("the text ends inside of a kernel");
    if (module_.kernels.empty()) fail("the text has no kernel");
    return std::move(module_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("PTX line " + std::to_string(line_) + ": " + what);
  }

  void take_line(std::string& line) {
    if (line.find(".entry") != std::string::npos) return begin_kernel(line);
    if (line.starts_with(".param")) return add_param(line);
    if (line.find(".shared") == 0 || line.starts_with(".visible .shared")) return add_shared(line);
    if (line == "{") {
      in_body_ = true;
      return;
    }
    if (line == "}") return end_kernel();
    if (line.find(".func") != std::string::npos) fail("functions that are not inlined are not supported");
    if (!in_body_ || line[0] == '.') return;
    if (line.back() == ':') {
      labels_[line.substr(0, line.size() - 1)] = static_cast<uint32_t>(kernel_.code.size());
      return;
    }
    add_instruction(line);
  }

  void begin_kernel(const std::string& line) {
    std::string name = trimmed(line.substr(line.find(".entry") + 6));
    name.resize(std::min(name.size(), name.find('(')));
    kernel_ = Kernel();
    kernel_.name = trimmed(name);
    registers_.clear();
    labels_.clear();
    names_.clear();
    branches_.clear();
  }

  // .param .align 8 .b8 name[48]   or   .param .u64 name
  void add_param(std::string line) {
    while (line.back() == ',' || line.back() == ')') line.pop_back();
    uint32_t align = 1, bytes = 0;
    std::string name;
    std::istringstream in(line);
    for (std::string word; in >> word;) {
      if (word == ".align") {
        in >> align;
      } else if (word[0] == '.') {
        if (const auto type = type_of(word.substr(1))) bytes = bytes_of(*type);
      } else {
        name = word;
      }
    }
    if (const size_t bracket = name.find('['); bracket != std::string::npos) {
      bytes *= static_cast<uint32_t>(std::stoul(name.substr(bracket + 1)));
      name.resize(bracket);
    }
    align = std::max(align, std::min(bytes, 8U));
    kernel_.param_bytes = (kernel_.param_bytes + align - 1) / align * align;
    names_[name] = kernel_.param_bytes;
    kernel_.param_bytes += bytes;
  }

  // A variable of a block. Those outside of kernels belong to all kernels of the module.
  void add_shared(std::string line) {
    if (line.back() == ';') line.pop_back();
    const size_t bracket = line.find('[');
    std::istringstream in(line.substr(0, bracket));
    uint32_t bytes = 1;
    std::string name;
    for (std::string word; in >> word;) {
      name = word;
      if (const auto type = type_of(word.substr(1)); word[0] == '.' && type) bytes = bytes_of(*type);
    }
    if (bracket != std::string::npos) bytes *= static_cast<uint32_t>(std::stoul(line.substr(bracket + 1)));
    constexpr uint32_t kAlign = 16;
    (in_body_ ? names_ : module_names_)[name] = shared_bytes_;
    shared_bytes_ += (bytes + kAlign - 1) / kAlign * kAlign;
  }

  void end_kernel() {
    for (const auto& [at, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) fail("kernel " + kernel_.name + " jumps to a label that it lacks: " + label);
      kernel_.code[at].target = found->second;
    }
    for (const auto& [name, index] : registers_) {
      if (const auto special = special_of(name)) {
        kernel_.specials.emplace_back(index, *special);
      } else if (name.find('.') != std::string::npos || name == "%laneid" || name == "%clock") {
        fail("kernel " + kernel_.name + " reads " + name + ", which is not supported");
      }
    }
    kernel_.n_registers = static_cast<uint32_t>(registers_.size());
    kernel_.code.push_back(Instruction());  // ret, where the text has none
    kernel_.shared_bytes = shared_bytes_;
    module_.kernels[kernel_.name] = kernel_;
    in_body_ = false;
  }

  int32_t reg(const std::string& name) {
    return registers_.emplace(name, static_cast<int32_t>(registers_.size())).first->second;
  }

  Operand operand(const std::string& text) {
    if (text.empty()) fail("an operand is missing");
    if (text[0] == '%') return {reg(text), 0};
    if (text.starts_with("0f") || text.starts_with("0d")) return {-1, std::stoull(text.substr(2), nullptr, 16)};
    for (const auto* names : {&names_, &module_names_})
      if (const auto found = names->find(text); found != names->end()) return {-1, found->second};
    if (text == "true" || text == "false") return {-1, text == "true" ? 1U : 0U};
    if (std::isdigit(static_cast<unsigned char>(text[0])) == 0 && text[0] != '-')
      fail("'" + text + "' is neither a register, a number nor a variable of the kernel");
    return {-1, static_cast<uint64_t>(text[0] == '-' ? std::stoll(text, nullptr, 0)
                                                     : static_cast<int64_t>(std::stoull(text, nullptr, 0)))};
  }

  // [base+offset]
  Operand address(const std::string& text, Instruction& out) {
    if (text.size() < 3 || text.front() != '[' || text.back() != ']') fail("'" + text + "' is not an address");
    std::string base = text.substr(1, text.size() - 2);
    if (const size_t plus = base.find('+'); plus != std::string::npos) {
      out.offset = std::stoll(base.substr(plus + 1), nullptr, 0);
      base.resize(plus);
    }
    return operand(base);
  }

  void add_instruction(std::string line) {
    Instruction out;
    out.line = line_;
    if (line.back() == ';') line.pop_back();
    if (line[0] == '@') {
      const size_t blank = line.find_first_of(" \t");
      std::string guard = line.substr(1, blank - 1);
      out.guard_negated = guard[0] == '!';
      if (out.guard_negated) guard.erase(0, 1);
      out.guard = reg(guard);
      line = trimmed(line.substr(blank));
    }
    const size_t blank = line.find_first_of(" \t");
    const std::string head = line.substr(0, blank);
    const std::string rest = blank == std::string::npos ? "" : trimmed(line.substr(blank));
    const std::vector<std::string> words = words_of(head);
    const auto op = op_of(words[0]);
    if (!op) fail("no '" + head + "' in this interpreter");
    out.op = *op;
    for (size_t i = 1; i < words.size(); ++i) take_modifier(words[i], head, out);
    if (out.op == Op::bra) {
      branches_.emplace_back(kernel_.code.size(), rest);
    } else {
      take_operands(words[0], operands_of(rest), rest.starts_with('{'), out);
    }
    kernel_.code.push_back(out);
  }

  void take_modifier(const std::string& word, const std::string& head, Instruction& out) {
    if (const auto type = type_of(word)) {
      // The result's type comes first, then that of the source.
      (out.type == Type::none ? out.type : out.from) = *type;
    } else if (const auto space = space_of(word)) {
      out.space = *space;
    } else if (const auto atomic = atomic_of(word); atomic && out.op == Op::atom) {
      out.atomic = *atomic;
    } else if (const auto compare = compare_of(word); compare && out.op == Op::setp) {
      out.compare = *compare;
      out.unordered = word.size() == 3 && word.back() == 'u';
    } else if (const auto rounding = rounding_of(word)) {
      out.rounding = *rounding;
    } else if (word == "v2" || word == "v4") {
      out.vector = word == "v2" ? 2 : 4;
    } else if (word == "wide" || word == "hi") {
      out.half = word == "wide" ? Half::wide : Half::high;
    } else if (word == "sat") {
      out.saturates = true;
    } else if (out.op == Op::warp && (word == "all" || word == "sync" || word == "bfly")) {
      return;
    } else if (word != "lo" && word != "to" && word != "uni" && word != "sync" && word != "nc" && word != "relaxed" &&
               word != "gpu" && word != "aligned" && word != "cta" && word != "volatile" && word != "weak") {
      fail("no '" + head + "' in this interpreter (." + word + ")");
    }
  }

  // mov.b64 {low, high}, from  or  mov.b64 to, {low, high}
  void take_halves(const std::vector<std::string>& texts, bool unpacks, Instruction& out) {
    out.op = unpacks ? Op::unpack : Op::pack;
    out.dst[0] = reg(texts[0]);
    if (unpacks) out.dst[1] = reg(texts[1]);
    for (size_t i = unpacks ? 2 : 1; i < 3; ++i) out.src[unpacks ? 0 : i - 1] = operand(texts[i]);
  }

  // `unpacks`: the result of a mov is in braces.
  void take_operands(const std::string& name, const std::vector<std::string>& texts, bool unpacks, Instruction& out) {
    const auto expect = [&](size_t n) {
      if (texts.size() != n) fail(name + " has " + std::to_string(texts.size()) + " operands");
    };
    if (out.op == Op::mov && texts.size() == 3 && out.type == Type::b64) return take_halves(texts, unpacks, out);
    if (out.op == Op::ret || out.op == Op::bar || out.op == Op::warp) return;
    if (out.op == Op::activemask) {
      expect(1);
      out.dst[0] = reg(texts[0]);
      return;
    }
    if (out.op == Op::ld) {
      expect(out.vector + 1U);
      for (uint8_t i = 0; i < out.vector; ++i) out.dst[i] = reg(texts[i]);
      out.src[0] = address(texts.back(), out);
      return;
    }
    if (out.op == Op::st) {
      expect(out.vector + 1U);
      out.src[0] = address(texts[0], out);
      for (uint8_t i = 0; i < out.vector; ++i) out.src[i + 1U] = operand(texts[i + 1U]);
      return;
    }
    if (out.op == Op::atom) {
      const size_t first = name == "red" ? 0 : 1;
      expect(first + 2);
      if (first == 1) out.dst[0] = reg(texts[0]);
      out.src[0] = address(texts[first], out);
      out.src[1] = operand(texts[first + 1]);
      return;
    }
    if (out.op == Op::mov || out.op == Op::cvt || out.op == Op::cvta) expect(2);
    if (texts.size() < 2 || texts.size() > 5) fail(name + " has " + std::to_string(texts.size()) + " operands");
    out.dst[0] = reg(texts[0]);
    for (size_t i = 1; i < texts.size(); ++i) out.src[i - 1] = operand(texts[i]);
  }

  Module module_;
  Kernel kernel_;
  bool in_body_ = false;
  uint32_t line_ = 0, shared_bytes_ = 0;
  std::map<std::string, int32_t> registers_;
  std::map<std::string, uint32_t> labels_, names_, module_names_;
  std::vector<std::pair<size_t, std::string>> branches_;
};

}  // namespace

Module parse(const std::string& text) { return Parser().run(text); }

}  // namespace standin::ptx
