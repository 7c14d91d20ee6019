#pragma once

// Arguments holds the arguments of a template's function, method, filter or test.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/chat/budget.h"
#include "runtime/tokenizer/chat/value.h"

namespace ds::tokenizer {

struct Arguments {
  Budget* budget;  // of the rendering; must outlive this object
  ValueList positional;
  std::vector<std::pair<std::string, Value>> named;

  // Returns the argument at this index or of this name; null when it is not given.
  const Value* Find(std::size_t ordinal, std::string_view name) const;
  // Return the argument converted to a type, or `otherwise` when it is not given. An argument of
  // another type is an error.
  StatusOr<std::string> Text(std::size_t ordinal, std::string_view name,
                             std::string otherwise) const;
  StatusOr<std::int64_t> Integer(std::size_t ordinal, std::string_view name,
                                 std::int64_t otherwise) const;
  bool Truth(std::size_t ordinal, std::string_view name, bool otherwise) const;
  // Returns the total bytes of all text arguments.
  std::uint64_t text_bytes() const;
  // Returns the arguments after the first `count`.
  Arguments After(std::size_t count) const;
};

// Returns the error that Python would raise, with the type of `value`.
Status TypeError(const std::string& what, const Value& value);

// Returns Python's error for an operator `sign` that does not accept these two operands.
Status OperandError(const std::string& sign, const Value& left, const Value& right);

// Adds the origins of `source` and the arguments to `made`, the result of a filter or method: to a
// text, or to each part of a text.
StatusOr<Value> KeepOrigin(Value made, const Value& source, const Arguments& arguments);

// Returns the elements that a loop iterates over: the elements of a list, the keys of a dict, the
// characters of a text. An undefined value has no elements.
StatusOr<ValueList> ElementsOf(const Value& value);

// Returns the cost of making these elements.
std::uint64_t ElementsCost(const Value& value);

// Splits a text into characters, as Python counts them.
std::vector<std::string> CharactersOf(std::string_view text);

// Returns an upper bound of the cost of comparing two values.
std::uint64_t ComparisonCost(const Value& a, const Value& b);
// Returns the same for comparing an element with each member of a container once.
std::uint64_t SearchCost(const Value& container, const Value& element);

// Returns the position of `what` in a text, searching from `from`; npos when it is not found. Runs
// in one pass over both for every input.
std::size_t FindInText(std::string_view text, std::string_view what, std::size_t from = 0);

// Compares numbers, texts and lists; an error for other types.
StatusOr<bool> IsLess(const Value& a, const Value& b);

// Returns true if the container has the element: a part of a text, an element of a list, a key of a
// dict.
StatusOr<bool> Contains(const Value& container, const Value& element);

// Return value.name of a dict, and value[key] of any value; undefined when it does not exist.
Value AttributeOf(const Value& value, const std::string& name);
Value ItemOf(const Value& value, const Value& key);

}  // namespace ds::tokenizer
