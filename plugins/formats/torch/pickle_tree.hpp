// SPDX-License-Identifier: Apache-2.0
//
// formats/torch/pickle_tree.hpp: the values of a Python pickle, read without running anything. A pickle is a program
// for a stack machine that may call any function by name; this reader knows the instructions that build data, and the names
// of pickle_names.cpp, each with a meaning of its own here. Everything else is refused by its name.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torch_format {

struct PickleValue {
  enum class Kind {
    none,
    flag,     // integer is 0 or 1
    integer,  // those beyond 64 bits are of kind real
    real,
    text,  // or bytes
    list,  // also a set
    tuple,
    dict,     // entries
    name,     // text: "torch.float32"
    object,   // text: its class; items: its arguments; state: what it was filled with, or nullptr
    storage,  // of a tensor: text is its key, name its type
    tensor    // items: storage, offset, shape, strides
  };
  using Ref = const PickleValue*;

  Kind kind = Kind::none;
  int64_t integer = 0;
  double real = 0;
  std::string text, name;
  std::vector<Ref> items;
  std::vector<std::pair<Ref, Ref>> entries;
  Ref state = nullptr;

  // Of a dict, or of an object's state that is one; nullptr where there is none.
  [[nodiscard]] Ref find(std::string_view key) const;
  // The same; throws std::out_of_range with the key.
  [[nodiscard]] const PickleValue& at(std::string_view key) const;
  // Throw std::invalid_argument where it is of another kind.
  [[nodiscard]] int64_t as_integer() const;
  [[nodiscard]] const std::string& as_text() const;
  [[nodiscard]] std::vector<int64_t> as_integers() const;
};

class PickleTree {
 public:
  // Throws ddh::Error naming `what` and the instruction or the name that is refused. The tree keeps no reference to `bytes`.
  PickleTree(std::string_view bytes, const std::string& what);

  [[nodiscard]] const PickleValue& root() const { return *root_; }

 private:
  friend class PickleMachine;
  std::deque<PickleValue> values_;  // addresses stay; values may refer to each other in circles
  PickleValue::Ref root_ = nullptr;
};

// What a name of a pickle means here.
enum class PickleName {
  refused,
  dict,          // called: an empty dict
  list,          // called: a list of what it is given
  tuple,         // called: the tuple that it is given
  tensor,        // called: a tensor from a storage
  parameter,     // called: the tensor that it is given
  text,          // called: the text that it is given
  typed_tensor,  // called: the tensor that its second argument, a tuple, describes
  member,        // called: a member of an enumeration; of anything else it is refused
  enumeration,   // data of an enumeration
  object         // data of a class, kept as it is
};
PickleName pickle_name(std::string_view name);

}  // namespace torch_format
