#pragma once

// Value: what a chat template computes with, as Python has it: undefined, None, bool, int, float,
// str, list, dict, a namespace, and what can be called. Lists and dicts are shared, not copied.
//
// Threads: a value and what it shares belong to one rendering.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/tokenizer/chat/origin.h"

namespace ds::tokenizer {

class Value;
struct Scope;
struct Macro;

using ValueList = std::vector<Value>;

// A dict keeps the order in which its keys came. Keys are looked for one by one: those of messages
// and tools are few.
struct ValueDict {
  std::vector<std::pair<Value, Value>> entries;

  // Null when there is no such key.
  const Value* Find(const Value& key) const;
  void Set(const Value& key, Value value);
};

// Tells what it costs to walk through a value, and how deep that goes. A value that is part of
// another one several times counts as often.
struct ValueShape {
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 56;  // more is this; sums have room

  std::uint64_t weight = 8;  // about its bytes as text
  int depth = 0;
  bool has_namespace = false;
  Origin origin = kNoOrigin;  // of all texts in it

  void Add(const ValueShape& part);
};

// Lists and dicts do not change once they are values, so their shape is known.
template <typename T>
struct Shaped {
  T value;
  ValueShape shape;
  Origin message = kNoOrigin;  // the index of the message that this dict is
};

// Something that can be called: a method of a value, or a function of the template's own.
struct Callable {
  std::string name;
  std::shared_ptr<const Value> self;   // of a method
  std::shared_ptr<const Macro> macro;  // of a macro, and where it is defined
  std::weak_ptr<Scope> scope;
};

class Value {
 public:
  struct Undefined {
    std::string why;  // "'x' is undefined", for the error when it is used
  };
  struct None {};
  // One that {% set ns.x = ... %} may change.
  struct Namespace {
    std::shared_ptr<ValueDict> values;
  };

  Value() : data_(Undefined{}) {}
  Value(None none) : data_(none) {}                            // NOLINT(google-explicit-*)
  Value(Undefined undefined) : data_(std::move(undefined)) {}  // NOLINT
  Value(bool value) : data_(value) {}                          // NOLINT
  Value(std::int64_t value) : data_(value) {}                  // NOLINT
  Value(double value) : data_(value) {}                        // NOLINT
  Value(std::string value) : data_(std::move(value)) {}        // NOLINT
  Value(const char* value) : data_(std::string(value)) {}      // NOLINT
  Value(ValueList list);                                       // NOLINT
  Value(ValueDict dict);                                       // NOLINT
  Value(Namespace space) : data_(std::move(space)) {}          // NOLINT
  Value(Callable callable) : data_(std::move(callable)) {}     // NOLINT

  static Value FromJson(const nlohmann::ordered_json& json, Origin origin = kNoOrigin);
  // The list of messages: each dict knows its index, each text its origin (origin.h).
  static Value FromMessages(const nlohmann::ordered_json& messages);

  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data_);
  }
  const std::string* text() const { return As<std::string>(); }
  // Null for what is no list, or no dict; a namespace counts as a dict.
  const ValueList* list() const;
  const ValueDict* dict() const;

  bool is_undefined() const { return As<Undefined>() != nullptr; }
  bool is_none() const { return As<None>() != nullptr; }
  // Numbers, booleans included.
  bool is_number() const;
  double number() const;  // requires is_number()

  ValueShape shape() const;

  Origin origin() const { return text() != nullptr ? origin_ : shape().origin; }
  // The same text, or list of texts, with this origin added.
  Value&& WithOrigin(Origin origin) &&;
  // The index of the message that this dict is; kNoOrigin for every other value.
  Origin message() const;

  // Python's bool().
  bool Truth() const;
  // Python's str() and repr().
  std::string Str() const;
  std::string Repr() const;
  // "str", "list", ... for errors.
  std::string TypeName() const;

  friend bool operator==(const Value& a, const Value& b);

 private:
  Value(ValueDict dict, Origin message);

  std::variant<Undefined, None, bool, std::int64_t, double, std::string,
               std::shared_ptr<const Shaped<ValueList>>, std::shared_ptr<const Shaped<ValueDict>>,
               Namespace, Callable>
      data_;
  Origin origin_ = kNoOrigin;  // of a text
};

// Python's repr() of a float, and of a text.
std::string ReprOfFloat(double value);
std::string ReprOfText(std::string_view text);

// The style of what json.dumps(value, ensure_ascii=False) writes; `indent` below 0 is none.
struct JsonStyle {
  int indent = -1;
  bool sort_keys = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string ToJson(const Value& value, const JsonStyle& style);

}  // namespace ds::tokenizer
