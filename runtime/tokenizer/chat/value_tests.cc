#include <cmath>

#include "runtime/tokenizer/chat/filters.h"
#include "runtime/tokenizer/chat/methods.h"

namespace ds::tokenizer {
namespace {

// Applies a test without an argument.
std::optional<bool> TestKind(const std::string& name, const Value& value) {
  const bool is_integer = value.As<std::int64_t>() != nullptr;
  const bool* flag = value.As<bool>();
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.text() != nullptr;
  if (name == "mapping") return value.dict() != nullptr;
  if (name == "sequence" || name == "iterable") {
    return value.text() != nullptr || value.list() != nullptr || value.dict() != nullptr ||
           value.is_undefined();
  }
  if (name == "number") return value.is_number();
  if (name == "integer") return is_integer;
  if (name == "float") return value.As<double>() != nullptr;
  if (name == "boolean") return flag != nullptr;
  if (name == "true") return flag != nullptr && *flag;
  if (name == "false") return flag != nullptr && !*flag;
  if (name == "callable") return value.As<Callable>() != nullptr;
  if (name == "upper") return value.text() != nullptr && UpperText(*value.text()) == *value.text();
  if (name == "lower") return value.text() != nullptr && LowerText(*value.text()) == *value.text();
  return std::nullopt;
}

StatusOr<bool> TestDivision(const std::string& name, const Value& value,
                            const Arguments& arguments) {
  const auto* number = value.As<std::int64_t>();
  if (number == nullptr) return TypeError("a whole number is needed", value);
  if (name == "even") return *number % 2 == 0;
  if (name == "odd") return *number % 2 != 0;
  DS_ASSIGN_OR_RETURN(const std::int64_t divisor, arguments.Integer(0, "num", 0));
  if (divisor == 0) return InvalidArgumentError("division by zero");
  return divisor == -1 || *number % divisor == 0;  // the smallest number % -1 would overflow
}

// Applies a test that compares with an argument.
StatusOr<bool> TestAgainst(const std::string& name, const Value& value, const Value& other) {
  if (name == "equalto" || name == "eq" || name == "==") return value == other;
  if (name == "ne" || name == "!=") return !(value == other);
  if (name == "sameas") return value.TypeName() == other.TypeName() && value == other;
  if (name == "in") return Contains(other, value);
  if (name == "lt" || name == "lessthan" || name == "<") return IsLess(value, other);
  if (name == "gt" || name == "greaterthan" || name == ">") return IsLess(other, value);
  const bool at_most = name == "le" || name == "<=";
  if (!at_most && name != "ge" && name != ">=") {
    return InvalidArgumentError("there is no test '" + name + "'");
  }
  DS_ASSIGN_OR_RETURN(const bool beyond, at_most ? IsLess(other, value) : IsLess(value, other));
  return !beyond;
}

}  // namespace

StatusOr<bool> ApplyTest(const std::string& name, const Value& value, const Arguments& arguments) {
  if (value.text() != nullptr) DS_RETURN_IF_ERROR(arguments.budget->Spend(value.text()->size()));
  if (const auto found = TestKind(name, value)) return *found;
  if (name == "even" || name == "odd" || name == "divisibleby") {
    return TestDivision(name, value, arguments);
  }
  const Value* other = arguments.Find(0, "other");
  if (other == nullptr) return InvalidArgumentError("there is no test '" + name + "'");
  DS_RETURN_IF_ERROR(arguments.budget->Spend(ComparisonCost(value, *other)));
  DS_RETURN_IF_ERROR(arguments.budget->Spend(name == "in" ? SearchCost(*other, value) : 0));
  return TestAgainst(name, value, *other);
}

}  // namespace ds::tokenizer
