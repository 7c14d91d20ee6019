#include "runtime/tokenizer/chat/arguments.h"

#include <algorithm>
#include <cstring>

#include "runtime/tokenizer/chat/methods.h"
#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

std::string ObjectName(const Value& value) { return "'" + value.TypeName() + " object'"; }

Value Missing(const Value& value, const std::string& name) {
  return Value(Value::Undefined{ObjectName(value) + " has no attribute '" + name + "'"});
}

// Returns the element at an index, counted from the end when it is below 0.
Value ElementAt(const ValueList& list, std::int64_t index) {
  const auto size = static_cast<std::int64_t>(list.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) {
    return Value(Value::Undefined{"'list object' has no element " + std::to_string(index)});
  }
  return list[static_cast<std::size_t>(index)];
}

}  // namespace

const Value* Arguments::Find(std::size_t ordinal, std::string_view name) const {
  if (ordinal < positional.size()) return &positional[ordinal];
  for (const auto& [each, value] : named) {
    if (each == name) return &value;
  }
  return nullptr;
}

StatusOr<std::string> Arguments::Text(std::size_t ordinal, std::string_view name,
                                      std::string otherwise) const {
  const Value* found = Find(ordinal, name);
  if (found == nullptr) return otherwise;
  if (found->text() == nullptr) return TypeError("a text is needed", *found);
  return *found->text();
}

StatusOr<std::int64_t> Arguments::Integer(std::size_t ordinal, std::string_view name,
                                          std::int64_t otherwise) const {
  const Value* found = Find(ordinal, name);
  if (found == nullptr || found->is_none()) return otherwise;
  if (const bool* flag = found->As<bool>()) return std::int64_t{*flag};
  if (found->As<std::int64_t>() == nullptr) return TypeError("a whole number is needed", *found);
  return *found->As<std::int64_t>();
}

bool Arguments::Truth(std::size_t ordinal, std::string_view name, bool otherwise) const {
  const Value* found = Find(ordinal, name);
  return found == nullptr ? otherwise : found->Truth();
}

std::uint64_t Arguments::text_bytes() const {
  std::uint64_t bytes = 0;
  for (const Value& each : positional) bytes += each.text() == nullptr ? 0 : each.text()->size();
  for (const auto& [name, each] : named) bytes += each.text() == nullptr ? 0 : each.text()->size();
  return bytes;
}

Arguments Arguments::After(std::size_t count) const {
  Arguments rest{budget, {}, named};
  for (std::size_t i = count; i < positional.size(); ++i) rest.positional.push_back(positional[i]);
  return rest;
}

Status TypeError(const std::string& what, const Value& value) {
  if (const auto* undefined = value.As<Value::Undefined>()) {
    return InvalidArgumentError(undefined->why);
  }
  return InvalidArgumentError(what + ", not '" + value.TypeName() + "'");
}

Status OperandError(const std::string& sign, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right}) {
    if (value->is_undefined()) return TypeError("", *value);
  }
  return InvalidArgumentError("unsupported operand types for " + sign + ": '" + left.TypeName() +
                              "' and '" + right.TypeName() + "'");
}

StatusOr<Value> KeepOrigin(Value made, const Value& source, const Arguments& arguments) {
  Origin origin = source.origin();
  for (const Value& each : arguments.positional) origin = MergeOrigins(origin, each.origin());
  for (const auto& [name, each] : arguments.named) origin = MergeOrigins(origin, each.origin());
  if (made.list() != nullptr && (origin == kNoOrigin || source.text() == nullptr)) return made;
  if (made.list() != nullptr) DS_RETURN_IF_ERROR(arguments.budget->Spend(made.shape().weight));
  return std::move(made).WithOrigin(origin);
}

StatusOr<ValueList> ElementsOf(const Value& value) {
  if (value.is_undefined()) return ValueList{};
  if (const ValueList* list = value.list()) return *list;
  ValueList elements;
  if (const ValueDict* dict = value.dict()) {
    for (const auto& entry : dict->entries) elements.push_back(entry.first);
    return elements;
  }
  if (const std::string* text = value.text()) {
    for (std::string& character : CharactersOf(*text)) {
      elements.push_back(Value(std::move(character)).WithOrigin(value.origin()));
    }
    return elements;
  }
  return TypeError("only lists, dicts and texts have elements", value);
}

std::uint64_t ElementsCost(const Value& value) {
  if (value.text() != nullptr) return sizeof(Value) * value.text()->size();
  if (value.list() != nullptr) return sizeof(Value) * value.list()->size();
  return value.dict() == nullptr ? 0 : sizeof(Value) * value.dict()->entries.size();
}

std::vector<std::string> CharactersOf(std::string_view text) {
  std::vector<std::string> characters;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = Utf8Length(text[at]);
    characters.emplace_back(text.substr(at, length));
    at += length;
  }
  return characters;
}

std::uint64_t ComparisonCost(const Value& a, const Value& b) {
  if (a.text() != nullptr && b.text() != nullptr) {
    return std::min(a.text()->size(), b.text()->size());
  }
  if (a.list() != nullptr && b.list() != nullptr) {
    return std::min(a.shape().weight, b.shape().weight);
  }
  if (a.dict() == nullptr || b.dict() == nullptr) return 1;
  // Each key is searched for among the others.
  std::uint64_t cost = 0;
  const std::uint64_t weight = std::max(a.shape().weight, b.shape().weight);
  const bool huge = __builtin_mul_overflow(weight, a.dict()->entries.size() + 1, &cost);
  return huge ? ValueShape::kMost : std::min(cost, ValueShape::kMost);
}

std::uint64_t SearchCost(const Value& container, const Value& element) {
  if (const std::string* text = container.text()) return text->size() + element.shape().weight;
  if (container.list() == nullptr && container.dict() == nullptr) return 1;
  const std::size_t count =
      container.list() != nullptr ? container.list()->size() : container.dict()->entries.size();
  std::uint64_t cost = 0;
  const std::uint64_t of_each = ComparisonCost(element, element) + 1;
  const bool huge = __builtin_mul_overflow(of_each, count, &cost);
  return huge ? ValueShape::kMost : std::min(cost, ValueShape::kMost);
}

std::size_t FindInText(std::string_view text, std::string_view what, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* found = ::memmem(text.data() + from, text.size() - from, what.data(), what.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

StatusOr<bool> IsLess(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() < *b.text();
  if (a.list() == nullptr || b.list() == nullptr) {
    return OperandError("<", a, b);
  }
  for (std::size_t i = 0; i < a.list()->size() && i < b.list()->size(); ++i) {
    if ((*a.list())[i] == (*b.list())[i]) continue;
    return IsLess((*a.list())[i], (*b.list())[i]);
  }
  return a.list()->size() < b.list()->size();
}

StatusOr<bool> Contains(const Value& container, const Value& element) {
  if (const std::string* text = container.text()) {
    if (element.text() == nullptr) return TypeError("only a text is in a text", element);
    return FindInText(*text, *element.text()) != std::string::npos;
  }
  if (const ValueDict* dict = container.dict()) return dict->Find(element) != nullptr;
  DS_ASSIGN_OR_RETURN(const ValueList elements, ElementsOf(container));
  return std::find(elements.begin(), elements.end(), element) != elements.end();
}

Value AttributeOf(const Value& value, const std::string& name) {
  const bool is_namespace = value.As<Value::Namespace>() != nullptr;
  if (!is_namespace && HasMethod(value, name)) {
    return Value(Callable{name, std::make_shared<const Value>(value), nullptr, {}});
  }
  if (const ValueDict* dict = value.dict()) {
    if (const Value* found = dict->Find(Value(name))) return *found;
  }
  return Missing(value, name);
}

Value ItemOf(const Value& value, const Value& key) {
  if (const ValueDict* dict = value.dict()) {
    if (const Value* found = dict->Find(key)) return *found;
  }
  const auto* integer = key.As<std::int64_t>();
  if (integer != nullptr && value.list() != nullptr) return ElementAt(*value.list(), *integer);
  if (integer != nullptr && value.text() != nullptr) {
    ValueList characters;
    for (std::string& each : CharactersOf(*value.text())) characters.emplace_back(std::move(each));
    return ElementAt(characters, *integer).WithOrigin(value.origin());
  }
  if (key.text() == nullptr) return Missing(value, key.Repr());
  if (HasMethod(value, *key.text())) {
    return Value(Callable{*key.text(), std::make_shared<const Value>(value), nullptr, {}});
  }
  return Missing(value, *key.text());
}

}  // namespace ds::tokenizer
