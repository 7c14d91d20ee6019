#pragma once

// Arguments: what a function, method, filter or test of a template is given.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/chat/budget.h"
#include "runtime/tokenizer/chat/value.h"

namespace ds::tokenizer {

struct Arguments {
  Budget* budget;  // of the rendering
  ValueList positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at this place, or of this name; null when it is not given.
  const Value* Find(std::size_t place, std::string_view name) const;
  // The same with a type, or what counts when it is not given. Another type is an error.
  StatusOr<std::string> Text(std::size_t place, std::string_view name, std::string otherwise) const;
  StatusOr<std::int64_t> Whole(std::size_t place, std::string_view name,
                               std::int64_t otherwise) const;
  bool Truth(std::size_t place, std::string_view name, bool otherwise) const;
  // The bytes of all texts among them.
  std::uint64_t text_bytes() const;
  // The arguments behind the first `count`.
  Arguments Behind(std::size_t count) const;
};

// An error as Python would raise it, with the type of what it is about.
Status TypeError(const std::string& what, const Value& value);

// The operator `sign` does not take these two, as Python says it.
Status OperandError(const std::string& sign, const Value& left, const Value& right);

// Adds the origins of `source` and the arguments to what a filter or method has made of them: to a
// text, or to the parts of a text.
StatusOr<Value> KeepOrigin(Value made, const Value& source, const Arguments& arguments);

// The elements of what a loop may go over: those of a list, the keys of a dict, the characters of a
// text; an undefined value has none.
StatusOr<ValueList> ElementsOf(const Value& value);

// Tells what making them costs.
std::uint64_t ElementsCost(const Value& value);

// Texts by characters, as Python counts them.
std::vector<std::string> CharactersOf(std::string_view text);

// Tells what comparing two values may cost.
std::uint64_t ComparisonCost(const Value& a, const Value& b);
// The same for an element and all that is in a container, each of them once.
std::uint64_t SearchCost(const Value& container, const Value& element);

// Finds where `what` is in a text, from a place on; npos when it is not. Takes no more than one
// pass over both, whatever they are.
std::size_t FindInText(std::string_view text, std::string_view what, std::size_t from = 0);

// a < b for numbers, texts and lists; an error for others.
StatusOr<bool> IsLess(const Value& a, const Value& b);

// container contains element: part of a text, element of a list, key of a dict.
StatusOr<bool> Contains(const Value& container, const Value& element);

// value.name of a dict, and value[key] of everything; undefined when there is no such thing.
Value AttributeOf(const Value& value, const std::string& name);
Value ItemOf(const Value& value, const Value& key);

}  // namespace ds::tokenizer
