#pragma once

// Value is a value of a chat template with Python's types: undefined, None, bool, int, float, str,
// list, dict, namespace and callable. Lists and dicts are shared, not copied.
//
// Not thread-safe: a value and its shared parts belong to one rendering.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ds::tokenizer {

// Origin is the message that a rendered text comes from, as its index in the conversation.
//
// Values carry it through all operations on texts: a text that is cut, stripped, joined or written
// as JSON has the origin of its parts. Constants of the template and role names have no origin. The
// renderer uses origins to prove that a part of its output has no words of another message. It
// finds the part itself from the for loop over the messages (renderer.h).
using Origin = std::int32_t;

inline constexpr Origin kNoOrigin = -1;
inline constexpr Origin kManyOrigins = -2;

// Returns the origin of a text composed of two parts.
Origin MergeOrigins(Origin a, Origin b);

class Value;
struct Scope;
struct Macro;

using ValueList = std::vector<Value>;

// A dict in insertion order. Look-up is linear: dicts of messages and tools have few keys.
struct ValueDict {
  std::vector<std::pair<Value, Value>> entries;

  // Returns null when there is no such key.
  const Value* Find(const Value& key) const;
  void Set(const Value& key, Value value);
};

// The cost and depth of walking through a value. A value that is part of another one several times
// is counted each time.
struct ValueShape {
  // Larger weights saturate here, so that sums do not overflow.
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 56;

  std::uint64_t weight = 8;  // approximate bytes as text
  int depth = 0;
  bool has_namespace = false;
  Origin origin = kNoOrigin;  // of all texts in it

  void Add(const ValueShape& part);
};

// A list or dict with its shape. Values are immutable, so the shape is computed once.
template <typename T>
struct Shaped {
  T value;
  ValueShape shape;
  Origin message = kNoOrigin;  // index of the message that this dict represents
};

// A callable: a method of a value, or a function defined by the template.
struct Callable {
  std::string name;
  std::shared_ptr<const Value> self;   // for a method
  std::shared_ptr<const Macro> macro;  // for a macro; `scope` is where it is defined
  std::weak_ptr<Scope> scope;
};

class Value {
 public:
  struct Undefined {
    std::string why;  // "'x' is undefined", for the error when it is used
  };
  struct None {};
  // A namespace object, which {% set ns.x = ... %} may change.
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
  // Returns the list of messages. Each dict knows its index, and each text its origin.
  static Value FromMessages(const nlohmann::ordered_json& messages);

  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data_);
  }
  const std::string* text() const { return As<std::string>(); }
  // Return null if the value is not a list or a dict, respectively. A namespace counts as a dict.
  const ValueList* list() const;
  const ValueDict* dict() const;

  bool is_undefined() const { return As<Undefined>() != nullptr; }
  bool is_none() const { return As<None>() != nullptr; }
  // Returns true for numbers and booleans.
  bool is_number() const;
  double number() const;  // requires is_number()

  ValueShape shape() const;

  Origin origin() const { return text() != nullptr ? origin_ : shape().origin; }
  // Returns the same text, or list of texts, with this origin added.
  Value&& WithOrigin(Origin origin) &&;
  // Returns the index of the message that this dict represents; kNoOrigin for every other value.
  Origin message() const;

  // Implements Python's bool().
  bool Truth() const;
  // Implement Python's str() and repr().
  std::string Str() const;
  std::string Repr() const;
  // Returns "str", "list", ... for errors.
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

// Implement Python's repr() of a float and of a text.
std::string ReprOfFloat(double value);
std::string ReprOfText(std::string_view text);

// The style of json.dumps(value, ensure_ascii=False). `indent` below 0 means none.
struct JsonStyle {
  int indent = -1;
  bool sort_keys = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string ToJson(const Value& value, const JsonStyle& style);

}  // namespace ds::tokenizer
