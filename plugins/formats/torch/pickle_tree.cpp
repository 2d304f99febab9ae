// SPDX-License-Identifier: Apache-2.0
#include "pickle_tree.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <stdexcept>

#include "bytes.hpp"

namespace torch_format {

PickleValue::Ref PickleValue::find(std::string_view key) const {
  const PickleValue& dict = kind == Kind::object && state != nullptr ? *state : *this;
  for (auto at = dict.entries.rbegin(); at != dict.entries.rend(); ++at)  // the last one counts, as in Python
    if (at->first->kind == Kind::text && at->first->text == key) return at->second;
  return nullptr;
}

const PickleValue& PickleValue::at(std::string_view key) const {
  const Ref found = find(key);
  if (found == nullptr) throw std::out_of_range("it has no entry '" + std::string(key) + "'");
  return *found;
}

int64_t PickleValue::as_integer() const {
  if (kind != Kind::integer && kind != Kind::flag) throw std::invalid_argument("a value is no integer");
  return integer;
}

const std::string& PickleValue::as_text() const {
  if (kind != Kind::text) throw std::invalid_argument("a value is no text");
  return text;
}

std::vector<int64_t> PickleValue::as_integers() const {
  if (kind != Kind::tuple && kind != Kind::list) throw std::invalid_argument("a value is no tuple");
  std::vector<int64_t> out;
  for (const Ref item : items) out.push_back(item->as_integer());
  return out;
}

// The stack machine. Instructions are named as in Python's pickletools.
class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& what, PickleTree& tree) : in_(bytes, what), tree_(tree) {}

  PickleValue::Ref run() {
    while (true) {
      const uint8_t code = in_.number<uint8_t>();
      if (code == '.') return pop();
      if (!constant(code) && !number(code) && !text(code) && !container(code) && !memory(code) && !call(code))
        refuse_instruction(code);
    }
  }

 private:
  using Kind = PickleValue::Kind;
  using Ref = PickleValue::Ref;

  [[noreturn]] void refuse_instruction(unsigned code) const {
    ddh::fail(DDH_PERMISSION_DENIED, in_.what(), " holds the pickle instruction ", code, " at byte ", in_.at() - 1,
              ", which builds no plain data, so it is refused; save a state dict of tensors");
  }
  [[noreturn]] void refuse_name(std::string_view name) const {
    ddh::fail(
        DDH_PERMISSION_DENIED, in_.what(), " asks to call or to load '", name,
        "', which no checkpoint of weights needs, so it is refused and nothing is run; if you trust the file, save ",
        "its state dict of tensors alone");
  }

  PickleValue& add(Kind kind) {
    PickleValue& value = tree_.values_.emplace_back();
    value.kind = kind;
    return value;
  }
  void push(PickleValue& value) { stack_.push_back(&value); }
  PickleValue* pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) in_.cut_short();
    PickleValue* const top = stack_.back();
    stack_.pop_back();
    return top;
  }
  PickleValue& top() {
    PickleValue* const value = pop();
    stack_.push_back(value);
    return *value;
  }
  // An object that is read again and again must not grow into more memory than the file could hold.
  void count_copy(size_t elements) {
    constexpr size_t kMostCopied = size_t{1} << 24;
    copied_ += elements;
    if (copied_ > kMostCopied) in_.cut_short();
  }
  // All since the last mark.
  std::vector<Ref> pop_marked() {
    if (marks_.empty() || marks_.back() > stack_.size()) in_.cut_short();
    std::vector<Ref> out(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }

  bool constant(uint8_t code) {
    switch (code) {
      case 0x80:  // PROTO
        in_.take(1);
        return true;
      case 0x95:  // FRAME
        in_.take(8);
        return true;
      case 'N':
        push(add(Kind::none));
        return true;
      case 0x88:
      case 0x89:  // NEWTRUE, NEWFALSE
        add(Kind::flag).integer = code == 0x88 ? 1 : 0;
        push(tree_.values_.back());
        return true;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '0':
        pop();
        return true;
      default:
        return false;
    }
  }

  bool number(uint8_t code) {
    PickleValue& value = tree_.values_.emplace_back();
    value.kind = Kind::integer;
    switch (code) {
      case 'J':
        value.integer = in_.number<int32_t>();
        break;
      case 'K':
        value.integer = in_.number<uint8_t>();
        break;
      case 'M':
        value.integer = in_.number<uint16_t>();
        break;
      case 0x8a:  // LONG1
        long_number(value, in_.take(in_.number<uint8_t>()));
        break;
      case 'G': {  // BINFLOAT, the most significant byte first
        value.kind = Kind::real;
        uint64_t bits = 0;
        for (const char byte : in_.take(8)) bits = bits << 8 | static_cast<uint8_t>(byte);
        value.real = std::bit_cast<double>(bits);
        break;
      }
      default:
        tree_.values_.pop_back();
        return false;
    }
    push(value);
    return true;
  }

  static void long_number(PickleValue& value, std::string_view bytes) {
    double real = 0;
    uint64_t bits = 0;
    for (size_t i = bytes.size(); i-- > 0;) {
      real = real * 256 + static_cast<uint8_t>(bytes[i]);
      bits = bits << 8 | static_cast<uint8_t>(bytes[i]);
    }
    const bool is_negative = !bytes.empty() && (static_cast<uint8_t>(bytes.back()) & 0x80) != 0;
    if (bytes.size() <= 8) {
      if (is_negative && bytes.size() < 8) bits |= ~uint64_t{0} << (8 * bytes.size());
      value.integer = static_cast<int64_t>(bits);
    } else {
      value.kind = Kind::real;
      value.real = real;
    }
  }

  bool text(uint8_t code) {
    uint64_t bytes = 0;
    switch (code) {
      case 0x8c:  // SHORT_BINUNICODE
      case 'C':
      case 'U':
        bytes = in_.number<uint8_t>();
        break;
      case 'X':
      case 'B':
      case 'T':
        bytes = in_.number<uint32_t>();
        break;
      case 0x8d:  // BINUNICODE8
      case 0x8e:  // BINBYTES8
        bytes = in_.number<uint64_t>();
        break;
      default:
        return false;
    }
    add(Kind::text).text = in_.take(bytes);
    push(tree_.values_.back());
    return true;
  }

  bool container(uint8_t code) {
    switch (code) {
      case ')':
        push(add(Kind::tuple));
        return true;
      case ']':
      case 0x8f:  // EMPTY_SET
        push(add(Kind::list));
        return true;
      case '}':
        push(add(Kind::dict));
        return true;
      case 't':
      case 0x91:  // FROZENSET
        return push_tuple(pop_marked());
      case 0x85:
      case 0x86:
      case 0x87: {  // TUPLE1 to 3
        std::vector<Ref> items(code - 0x84U);
        for (size_t i = items.size(); i-- > 0;) items[i] = pop();
        return push_tuple(std::move(items));
      }
      case 'a':
        return extend({pop()});
      case 'e':
      case 0x90:  // ADDITEMS
        return extend(pop_marked());
      case 's': {
        const Ref value = pop(), key = pop();
        return set_items({key, value});
      }
      case 'u':
        return set_items(pop_marked());
      default:
        return false;
    }
  }
  bool push_tuple(std::vector<Ref> items) {
    PickleValue& value = add(Kind::tuple);
    value.items = std::move(items);
    push(value);
    return true;
  }
  bool extend(const std::vector<Ref>& items) {
    PickleValue& list = top();
    list.items.insert(list.items.end(), items.begin(), items.end());
    return true;
  }
  bool set_items(const std::vector<Ref>& items) {
    if (items.size() % 2 != 0) in_.cut_short();
    PickleValue& dict = top();
    for (size_t i = 0; i < items.size(); i += 2) dict.entries.emplace_back(items[i], items[i + 1]);
    return true;
  }

  bool memory(uint8_t code) {
    switch (code) {
      case 'q':
        memo_[in_.number<uint8_t>()] = &top();
        return true;
      case 'r':
        memo_[in_.number<uint32_t>()] = &top();
        return true;
      case 0x94:  // MEMOIZE
        memo_[memo_.size()] = &top();
        return true;
      case 'h':
        return recall(in_.number<uint8_t>());
      case 'j':
        return recall(in_.number<uint32_t>());
      default:
        return false;
    }
  }
  bool recall(uint64_t place) {
    const auto at = memo_.find(place);
    if (at == memo_.end()) in_.cut_short();
    stack_.push_back(at->second);
    return true;
  }

  bool call(uint8_t code) {
    switch (code) {
      case 'c': {
        const std::string module(in_.line());
        return push_name(module + "." + std::string(in_.line()));
      }
      case 0x93: {  // STACK_GLOBAL
        const Ref name = pop(), module = pop();
        return push_name(module->text + "." + name->text);
      }
      case 'Q':
        return push_storage(pop());
      case 'R':
      case 0x81: {  // REDUCE, NEWOBJ
        const Ref arguments = pop(), name = pop();
        if (name->kind != Kind::name || arguments->kind != Kind::tuple) in_.cut_short();
        return push_result(name->text, arguments->items);
      }
      case 'b':
        build(pop());
        return true;
      default:
        return false;
    }
  }

  bool push_name(std::string name) {
    if (pickle_name(name) == PickleName::refused) refuse_name(name);
    PickleValue& value = add(Kind::name);
    value.text = std::move(name);
    push(value);
    return true;
  }

  // ("storage", its type, key, device, elements)
  bool push_storage(Ref id) {
    if (id->kind != Kind::tuple || id->items.size() < 5 || id->items[0]->text != "storage" ||
        id->items[1]->kind != Kind::name || id->items[2]->kind != Kind::text)
      in_.cut_short();
    PickleValue& storage = add(Kind::storage);
    storage.name = id->items[1]->text;
    storage.text = id->items[2]->text;
    push(storage);
    return true;
  }

  bool push_result(const std::string& name, const std::vector<Ref>& arguments) {
    const auto first_of = [&](Kind kind) {
      if (arguments.empty() || arguments[0]->kind != kind) in_.cut_short();
      return arguments[0];
    };
    const PickleName meaning = pickle_name(name);
    PickleValue& value = add(Kind::object);
    value.text = name;
    value.items = arguments;
    if (meaning == PickleName::dict) value = {.kind = Kind::dict, .text = {}, .name = {}, .items = {}, .entries = {}};
    if (meaning == PickleName::list || meaning == PickleName::tuple) {
      value.kind = meaning == PickleName::list ? Kind::list : Kind::tuple;
      value.items = arguments.empty() ? std::vector<Ref>{} : arguments[0]->items;
      count_copy(value.items.size());
    }
    if (meaning == PickleName::member) check_member(arguments);
    if (meaning == PickleName::typed_tensor) {
      if (arguments.size() < 3 || arguments[0]->kind != Kind::name || arguments[2]->kind != Kind::tuple)
        in_.cut_short();
      if (pickle_name(arguments[0]->text) != PickleName::tensor) refuse_name(arguments[0]->text);
      return push_result(arguments[0]->text, arguments[2]->items);
    }
    if (meaning == PickleName::text) {
      value = *first_of(Kind::text);
      count_copy(value.text.size());
    }
    if (meaning == PickleName::parameter) value = *first_of(Kind::tensor);
    if (meaning == PickleName::tensor) {
      first_of(Kind::storage);
      if (arguments.size() < 4) in_.cut_short();
      value.kind = Kind::tensor;
      value.items.resize(4);
    }
    push(value);
    return true;
  }

  // getattr(an enumeration, text): Python pickles members of an enumeration so. Of anything else it is a way out.
  void check_member(const std::vector<Ref>& arguments) const {
    const bool is_member = arguments.size() == 2 && arguments[0]->kind == Kind::name &&
                           arguments[1]->kind == Kind::text &&
                           pickle_name(arguments[0]->text) == PickleName::enumeration;
    if (!is_member) refuse_name(arguments.empty() ? "getattr" : "getattr of " + arguments[0]->text);
  }

  // The state of an object: a dict, or a pair of one and of slots. A dict's own attributes have no meaning here.
  void build(Ref state) {
    PickleValue& object = top();
    if (object.kind == Kind::object) object.state = state;
  }

  ByteReader in_;
  PickleTree& tree_;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, PickleValue*> memo_;
  size_t copied_ = 0;
};

PickleTree::PickleTree(std::string_view bytes, const std::string& what) {
  root_ = PickleMachine(bytes, what, *this).run();
}

}  // namespace torch_format
