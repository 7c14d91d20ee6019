#include "runtime/tokenizer/chat/filters.h"

#include <algorithm>
#include <bit>

#include "runtime/base/parse_number.h"
#include "runtime/tokenizer/chat/methods.h"

namespace ds::tokenizer {
namespace {

// Returns the nested attribute "a.b.0" of a value.
Value PathOf(Value value, std::string_view path) {
  while (!path.empty()) {
    const std::string_view name = path.substr(0, path.find('.'));
    path.remove_prefix(std::min(name.size() + 1, path.size()));
    const auto index = ParseNumber<std::int64_t>(name);
    value = ItemOf(value, index ? Value(*index) : Value(std::string(name)));
  }
  return value;
}

// Implements map(attribute="a", default=x) and map("filter", ...).
StatusOr<Value> MapElements(const ValueList& elements, const Arguments& arguments) {
  ValueList mapped;
  const Value* attribute = arguments.Find(arguments.positional.size(), "attribute");
  const Value* otherwise = arguments.Find(arguments.positional.size(), "default");
  for (const Value& element : elements) {
    if (attribute != nullptr) {
      Value found = PathOf(element, attribute->Str());
      mapped.push_back(found.is_undefined() && otherwise != nullptr ? *otherwise : found);
      continue;
    }
    DS_ASSIGN_OR_RETURN(const std::string filter, arguments.Text(0, "", ""));
    DS_ASSIGN_OR_RETURN(Value value, ApplyFilter(filter, element, arguments.After(1)));
    mapped.push_back(std::move(value));
  }
  return Value(std::move(mapped));
}

// Implements select("test", ...), selectattr("attribute", "test", ...), reject and rejectattr.
StatusOr<Value> SelectElements(const std::string& name, const ValueList& elements,
                               const Arguments& arguments) {
  const bool by_attribute = name.ends_with("attr");
  const bool keeps = name.starts_with("select");
  const std::size_t ordinal = by_attribute ? 1 : 0;
  ValueList kept;
  for (const Value& element : elements) {
    Value value = element;
    if (by_attribute) {
      DS_ASSIGN_OR_RETURN(const std::string attribute, arguments.Text(0, "", ""));
      value = PathOf(element, attribute);
    }
    bool good = value.Truth();
    if (arguments.positional.size() > ordinal) {
      DS_ASSIGN_OR_RETURN(const std::string test, arguments.Text(ordinal, "", ""));
      DS_ASSIGN_OR_RETURN(good, ApplyTest(test, value, arguments.After(ordinal + 1)));
    }
    if (good == keeps) kept.push_back(element);
  }
  return Value(std::move(kept));
}

StatusOr<Value> JoinElements(const ValueList& elements, const Arguments& arguments) {
  DS_ASSIGN_OR_RETURN(const std::string separator, arguments.Text(0, "d", ""));
  const Value* attribute = arguments.Find(1, "attribute");
  std::string joined;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (i > 0) joined += separator;
    joined +=
        attribute == nullptr ? elements[i].Str() : PathOf(elements[i], attribute->Str()).Str();
  }
  return Value(std::move(joined));
}

Value SortKey(const Value& element, const Value* attribute, bool case_sensitive) {
  Value key = attribute == nullptr ? element : PathOf(element, attribute->Str());
  if (!case_sensitive && key.text() != nullptr) key = Value(LowerText(*key.text()));
  return key;
}

// Spends the cost of comparing each element `times` times.
Status SpendOnComparing(const ValueList& elements, std::uint64_t times,
                        const Arguments& arguments) {
  for (const Value& element : elements) {
    const std::uint64_t cost = ComparisonCost(element, element) + arguments.text_bytes();
    DS_RETURN_IF_ERROR(arguments.budget->Spend(times, 1 + cost));
  }
  return OkStatus();
}

StatusOr<Value> SortElements(ValueList elements, const Arguments& arguments) {
  DS_RETURN_IF_ERROR(SpendOnComparing(elements, std::bit_width(elements.size()), arguments));
  const bool reverse = arguments.Truth(0, "reverse", false);
  const bool case_sensitive = arguments.Truth(1, "case_sensitive", false);
  const Value* attribute = arguments.Find(2, "attribute");
  Status failure;
  std::stable_sort(elements.begin(), elements.end(), [&](const Value& a, const Value& b) {
    const Value first = SortKey(reverse ? b : a, attribute, case_sensitive);
    const Value second = SortKey(reverse ? a : b, attribute, case_sensitive);
    const auto less = IsLess(first, second);
    if (!less.ok()) failure = less.status();
    return less.ok() && *less;
  });
  if (!failure.ok()) return failure;
  return Value(std::move(elements));
}

StatusOr<Value> UniqueElements(const ValueList& elements, const Arguments& arguments) {
  DS_RETURN_IF_ERROR(SpendOnComparing(elements, elements.size(), arguments));
  const bool case_sensitive = arguments.Truth(0, "case_sensitive", false);
  const Value* attribute = arguments.Find(1, "attribute");
  ValueList kept, keys;
  for (const Value& element : elements) {
    Value key = SortKey(element, attribute, case_sensitive);
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    keys.push_back(std::move(key));
    kept.push_back(element);
  }
  return Value(std::move(kept));
}

StatusOr<Value> Extreme(const ValueList& elements, bool largest) {
  if (elements.empty()) return Value(Value::Undefined{"no element of an empty list"});
  Value best = elements.front();
  for (const Value& element : elements) {
    DS_ASSIGN_OR_RETURN(const bool better, largest ? IsLess(best, element) : IsLess(element, best));
    if (better) best = element;
  }
  return best;
}

StatusOr<Value> Sum(const ValueList& elements, const Arguments& arguments) {
  const Value* attribute = arguments.Find(0, "attribute");
  bool are_integers = true;
  std::int64_t integer_total = 0;
  double total = 0;
  for (const Value& element : elements) {
    const Value value = attribute == nullptr ? element : PathOf(element, attribute->Str());
    if (!value.is_number()) return TypeError("a sum needs numbers", value);
    total += value.number();
    are_integers = are_integers && value.As<double>() == nullptr;
    if (!are_integers) continue;
    const auto* number = value.As<std::int64_t>();
    const std::int64_t next = number == nullptr ? (value.Truth() ? 1 : 0) : *number;
    if (__builtin_add_overflow(integer_total, next, &integer_total)) {
      return InvalidArgumentError("a number is too large");
    }
  }
  return are_integers ? Value(integer_total) : Value(total);
}

// Returns the items of a dict, or no items for an undefined value; dictsort sorts them by key.
StatusOr<Value> Items(const Value& value, bool sorted, const Arguments& arguments) {
  DS_RETURN_IF_ERROR(arguments.budget->Spend(3 * ElementsCost(value)));
  ValueList items;
  if (value.dict() == nullptr) {
    if (value.is_undefined()) return Value(std::move(items));
    return TypeError("only a dict has items", value);
  }
  for (const auto& [key, each] : value.dict()->entries) items.emplace_back(ValueList{key, each});
  if (!sorted) return Value(std::move(items));
  Arguments by_key{arguments.budget, {}, {}};
  by_key.named.emplace_back("attribute", Value("0"));
  return SortElements(std::move(items), by_key);
}

StatusOr<Value> Batch(const ValueList& elements, const Arguments& arguments) {
  DS_ASSIGN_OR_RETURN(const std::int64_t size, arguments.Integer(0, "linecount", 0));
  if (size <= 0) return InvalidArgumentError("batch needs a size above 0");
  const Value* fill = arguments.Find(1, "fill_with");
  ValueList rows, row;
  for (const Value& element : elements) {
    row.push_back(element);
    if (static_cast<std::int64_t>(row.size()) == size) {
      rows.emplace_back(std::move(row));
      row.clear();
    }
  }
  if (row.empty()) return Value(std::move(rows));
  while (fill != nullptr && static_cast<std::int64_t>(row.size()) < size && size <= 4096) {
    row.push_back(*fill);
  }
  rows.emplace_back(std::move(row));
  return Value(std::move(rows));
}

}  // namespace

StatusOr<Value> ApplyListFilter(const std::string& name, const Value& value,
                                const Arguments& arguments) {
  if (name == "items" || name == "dictsort") return Items(value, name == "dictsort", arguments);
  if (name == "reverse" && value.text() != nullptr) {
    DS_RETURN_IF_ERROR(arguments.budget->Spend(ElementsCost(value)));
    std::vector<std::string> characters = CharactersOf(*value.text());
    std::string reversed;
    for (auto each = characters.rbegin(); each != characters.rend(); ++each) reversed += *each;
    return Value(std::move(reversed));
  }
  constexpr std::string_view kNames[] = {
      "list", "map",  "select", "reject",  "selectattr", "rejectattr", "join", "first",
      "last", "sort", "unique", "reverse", "sum",        "min",        "max",  "batch"};
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
    return InvalidArgumentError("there is no filter '" + name + "'");
  }
  DS_RETURN_IF_ERROR(arguments.budget->Spend(ElementsCost(value)));
  DS_ASSIGN_OR_RETURN(ValueList elements, ElementsOf(value));
  // Each element is processed with the texts passed to the filter: paths, separators.
  DS_RETURN_IF_ERROR(arguments.budget->Spend(elements.size(), 1 + arguments.text_bytes()));
  if (name == "map") return MapElements(elements, arguments);
  if (name.starts_with("select") || name.starts_with("reject")) {
    return SelectElements(name, elements, arguments);
  }
  if (name == "join") return JoinElements(elements, arguments);
  if (name == "sort") return SortElements(std::move(elements), arguments);
  if (name == "unique") return UniqueElements(elements, arguments);
  if (name == "min" || name == "max") return Extreme(elements, name == "max");
  if (name == "sum") return Sum(elements, arguments);
  if (name == "batch") return Batch(elements, arguments);
  if (name == "reverse") std::reverse(elements.begin(), elements.end());
  if (name == "first" || name == "last") {
    if (elements.empty()) return Value(Value::Undefined{"no element of an empty list"});
    return name == "first" ? elements.front() : elements.back();
  }
  return Value(std::move(elements));
}

}  // namespace ds::tokenizer
