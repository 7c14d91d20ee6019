#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/tokenizer/chat/filters.h"
#include "runtime/tokenizer/chat/methods.h"
#include "runtime/tokenizer/chat/renderer.h"

namespace ds::tokenizer {
namespace {

constexpr std::int64_t kLongestRange = 100000;  // as in Jinja's sandbox
constexpr int kDeepestExpression = 600;         // nested, macros included
constexpr int kDeepestValue = 200;
constexpr std::uint64_t kNamesPerByte = 8;  // searched for the cost of one byte

constexpr std::string_view kFunctions[] = {"raise_exception", "strftime_now", "namespace", "range",
                                           "dict"};

bool AreIntegers(const Value& a, const Value& b) {
  return a.As<double>() == nullptr && b.As<double>() == nullptr;
}

std::int64_t IntegerOf(const Value& value) {
  if (const bool* flag = value.As<bool>()) return *flag ? 1 : 0;
  return *value.As<std::int64_t>();
}

StatusOr<Value> DivideWhole(std::int64_t a, std::int64_t b, bool remainder) {
  if (b == 0) return InvalidArgumentError("division by zero");
  if (b == -1)
    return remainder ? Value(std::int64_t{0})
                     : Value(static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(a)));
  // Python rounds down, C++ towards zero.
  const std::int64_t rest = a % b;
  const bool down = rest != 0 && (rest < 0) != (b < 0);
  return remainder ? Value(down ? rest + b : rest) : Value(a / b - (down ? 1 : 0));
}

StatusOr<Value> ComputeNumbers(const std::string& name, const Value& left, const Value& right) {
  const double a = left.number();
  const double b = right.number();
  if (name == "/") {
    if (b == 0) return InvalidArgumentError("division by zero");
    return Value(a / b);
  }
  if (AreIntegers(left, right)) {
    const std::int64_t x = IntegerOf(left);
    const std::int64_t y = IntegerOf(right);
    std::int64_t result = 0;
    bool overflows = false;
    if (name == "//" || name == "%") return DivideWhole(x, y, name == "%");
    if (name == "+") overflows = __builtin_add_overflow(x, y, &result);
    if (name == "-") overflows = __builtin_sub_overflow(x, y, &result);
    if (name == "*") overflows = __builtin_mul_overflow(x, y, &result);
    if (name == "**") {
      if (y < 0) return Value(std::pow(a, b));
      result = 1;
      for (std::int64_t i = 0; i < y && !overflows && i < 64; ++i) {
        overflows = __builtin_mul_overflow(result, x, &result);
      }
      overflows = overflows || (y > 64 && x != 0 && x != 1);
    }
    if (overflows) return InvalidArgumentError("a number is too large");
    return Value(result);
  }
  if (name == "+") return Value(a + b);
  if (name == "-") return Value(a - b);
  if (name == "*") return Value(a * b);
  if (name == "**") return Value(std::pow(a, b));
  if (b == 0) return InvalidArgumentError("division by zero");
  const double quotient = std::floor(a / b);
  return name == "//" ? Value(quotient) : Value(a - quotient * b);
}

StatusOr<Value> CompareValues(const std::string& name, const Value& left, const Value& right) {
  if (name == "==") return Value(left == right);
  if (name == "!=") return Value(!(left == right));
  if (name == "in" || name == "not in") {
    DS_ASSIGN_OR_RETURN(const bool inside, Contains(right, left));
    return Value(inside == (name == "in"));
  }
  const bool swapped = name == ">" || name == "<=";
  DS_ASSIGN_OR_RETURN(const bool less, swapped ? IsLess(right, left) : IsLess(left, right));
  return Value(name == "<" || name == ">" ? less : !less);
}

StatusOr<Value> MakeRange(const Arguments& arguments) {
  std::array<std::int64_t, 3> bounds = {0, 0, 1};
  const std::size_t count = arguments.positional.size();
  if (count == 0 || count > 3) return InvalidArgumentError("range takes one to three numbers");
  for (std::size_t i = 0; i < count; ++i) {
    DS_ASSIGN_OR_RETURN(bounds[count == 1 ? 1 : i], arguments.Integer(i, "", 0));
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) return InvalidArgumentError("range needs a step that is not 0");
  ValueList list;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<std::int64_t>(list.size()) >= kLongestRange) {
      return ResourceExhaustedError("a range has more than " + std::to_string(kLongestRange) +
                                    " numbers");
    }
    list.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value(std::move(list));
}

StatusOr<ValueDict> DictOf(const Arguments& arguments) {
  ValueDict dict;
  for (const Value& given : arguments.positional) {
    if (given.dict() == nullptr) continue;
    const std::size_t count = given.dict()->entries.size();
    DS_RETURN_IF_ERROR(arguments.budget->Spend(count, sizeof(Value) + count));
    for (const auto& [key, value] : given.dict()->entries) dict.Set(key, value);
  }
  for (const auto& [name, value] : arguments.named) dict.Set(Value(name), value);
  return dict;
}

std::string FormatTime(const std::string& format, const std::tm& time) {
  std::array<char, 512> buffer;
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &time);
  return {buffer.data(), size};
}

// Returns the indices that [start:stop:step] selects from `size` elements, as Python does.
std::vector<std::size_t> SliceIndices(std::int64_t size, const Value& start, const Value& stop,
                                      std::int64_t step) {
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    const auto* integer = value.As<std::int64_t>();
    if (integer == nullptr) return otherwise;
    const std::int64_t index = *integer < 0 ? *integer + size : *integer;
    return step > 0 ? std::clamp<std::int64_t>(index, 0, size)
                    : std::clamp<std::int64_t>(index, -1, size - 1);
  };
  const std::int64_t first = bound(start, step > 0 ? 0 : size - 1);
  const std::int64_t end = bound(stop, step > 0 ? size : -1);
  std::vector<std::size_t> indices;
  for (std::int64_t i = first; step > 0 ? i < end : i > end; i += step) {
    indices.push_back(static_cast<std::size_t>(i));
    if ((step > 0 && step > end - i) || (step < 0 && step < end - i)) break;
  }
  return indices;
}

}  // namespace

StatusOr<Value> Renderer::EvaluateChild(const Expression& expression, std::size_t child,
                                        const ScopePtr& scope) {
  const ExpressionPtr& found = expression.children[child];
  return found == nullptr ? Value(Value::None{}) : Evaluate(*found, scope);
}

StatusOr<Value> Renderer::Evaluate(const Expression& expression, const ScopePtr& scope) {
  DS_RETURN_IF_ERROR(Spend(0));
  if (++expressions_ > kDeepestExpression) {
    return ResourceExhaustedError("the template nests expressions and macros too deep");
  }
  DS_ASSIGN_OR_RETURN(Value value, EvaluateKind(expression, scope));
  --expressions_;
  if (value.shape().depth > kDeepestValue) {
    return ResourceExhaustedError("the template nests lists and dicts too deep");
  }
  return value;
}

StatusOr<Value> Renderer::EvaluateName(const Expression& expression, const ScopePtr& scope) {
  DS_RETURN_IF_ERROR(budget_.Spend(scope->CountNames() / kNamesPerByte));
  if (const Value* found = scope->Find(expression.name)) return *found;
  for (const std::string_view function : kFunctions) {
    if (function == expression.name) return Value(Callable{expression.name, nullptr, nullptr, {}});
  }
  return Value(Value::Undefined{"'" + expression.name + "' is undefined"});
}

StatusOr<Value> Renderer::EvaluateKind(const Expression& expression, const ScopePtr& scope) {
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.constant;
    case ExpressionKind::kName:
      return EvaluateName(expression, scope);
    case ExpressionKind::kList:
      return EvaluateList(expression, scope);
    case ExpressionKind::kDict:
      return EvaluateDict(expression, scope);
    case ExpressionKind::kSlice:
      return EvaluateSlice(expression, scope);
    case ExpressionKind::kCall:
      return EvaluateCall(expression, scope);
    case ExpressionKind::kBinary:
      return EvaluateBinary(expression, scope);
    case ExpressionKind::kCondition:
      return EvaluateCondition(expression, scope);
    default:
      break;
  }
  DS_ASSIGN_OR_RETURN(const Value operand, EvaluateChild(expression, 0, scope));
  return EvaluateOperand(expression, operand, scope);
}

// Evaluates the kinds of expressions that begin with an operand.
StatusOr<Value> Renderer::EvaluateOperand(const Expression& expression, const Value& operand,
                                          const ScopePtr& scope) {
  if (const ValueDict* dict = operand.dict()) {
    DS_RETURN_IF_ERROR(budget_.Spend(dict->entries.size() / kNamesPerByte));
  }
  switch (expression.kind) {
    case ExpressionKind::kAttribute:
      if (operand.is_undefined()) return TypeError("", operand);
      return AttributeOf(operand, expression.name);
    case ExpressionKind::kItem: {
      if (operand.is_undefined()) return TypeError("", operand);
      DS_ASSIGN_OR_RETURN(const Value key, EvaluateChild(expression, 1, scope));
      DS_RETURN_IF_ERROR(budget_.Spend(operand.dict() != nullptr   ? SearchCost(operand, key)
                                       : operand.text() != nullptr ? ElementsCost(operand)
                                                                   : 0));
      return ItemOf(operand, key);
    }
    case ExpressionKind::kFilter: {
      DS_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression, scope));
      return ApplyFilter(expression.name, operand, arguments);
    }
    case ExpressionKind::kTest: {
      DS_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression, scope));
      DS_ASSIGN_OR_RETURN(const bool good, ApplyTest(expression.name, operand, arguments));
      return Value(good);
    }
    case ExpressionKind::kNot:
      return Value(!operand.Truth());
    default:
      break;
  }
  if (!operand.is_number()) return TypeError("a sign needs a number", operand);
  if (expression.kind == ExpressionKind::kPositive) return operand;
  return Compute("-", Value(std::int64_t{0}), operand);
}

StatusOr<Value> Renderer::EvaluateList(const Expression& expression, const ScopePtr& scope) {
  ValueList list;
  for (std::size_t i = 0; i < expression.children.size(); ++i) {
    DS_ASSIGN_OR_RETURN(Value element, EvaluateChild(expression, i, scope));
    list.push_back(std::move(element));
  }
  DS_RETURN_IF_ERROR(Spend(sizeof(Value) * list.size()));
  return Value(std::move(list));
}

StatusOr<Value> Renderer::EvaluateDict(const Expression& expression, const ScopePtr& scope) {
  // Each key is searched for among the existing ones.
  DS_RETURN_IF_ERROR(budget_.Spend(expression.children.size(), expression.children.size()));
  ValueDict dict;
  for (std::size_t i = 0; i + 1 < expression.children.size(); i += 2) {
    DS_ASSIGN_OR_RETURN(const Value key, EvaluateChild(expression, i, scope));
    DS_ASSIGN_OR_RETURN(Value value, EvaluateChild(expression, i + 1, scope));
    dict.Set(key, std::move(value));
  }
  return Value(std::move(dict));
}

StatusOr<Value> Renderer::EvaluateSlice(const Expression& expression, const ScopePtr& scope) {
  DS_ASSIGN_OR_RETURN(const Value integer, EvaluateChild(expression, 0, scope));
  DS_ASSIGN_OR_RETURN(const Value start, EvaluateChild(expression, 1, scope));
  DS_ASSIGN_OR_RETURN(const Value stop, EvaluateChild(expression, 2, scope));
  DS_ASSIGN_OR_RETURN(const Value given_step, EvaluateChild(expression, 3, scope));
  const auto* step = given_step.As<std::int64_t>();
  if (step != nullptr && *step == 0) return InvalidArgumentError("a slice has the step 0");
  if (integer.text() == nullptr && integer.list() == nullptr) {
    return TypeError("only lists and texts have slices", integer);
  }
  DS_RETURN_IF_ERROR(Spend(ElementsCost(integer)));
  DS_ASSIGN_OR_RETURN(const ValueList elements, ElementsOf(integer));
  ValueList list;
  std::string text;
  for (const std::size_t selected : SliceIndices(static_cast<std::int64_t>(elements.size()), start,
                                                 stop, step == nullptr ? 1 : *step)) {
    if (integer.text() != nullptr) {
      text += *elements[selected].text();
    } else {
      list.push_back(elements[selected]);
    }
  }
  if (integer.text() == nullptr) return Value(std::move(list));
  return Value(std::move(text)).WithOrigin(integer.origin());
}

StatusOr<Value> Renderer::EvaluateCondition(const Expression& expression, const ScopePtr& scope) {
  DS_ASSIGN_OR_RETURN(const Value condition, EvaluateChild(expression, 0, scope));
  if (condition.Truth()) return EvaluateChild(expression, 1, scope);
  if (expression.children[2] == nullptr) {
    return Value(Value::Undefined{"the inline if-expression has no else"});
  }
  return EvaluateChild(expression, 2, scope);
}

StatusOr<Value> Renderer::EvaluateBinary(const Expression& expression, const ScopePtr& scope) {
  DS_ASSIGN_OR_RETURN(Value left, EvaluateChild(expression, 0, scope));
  if (expression.name == "and" && !left.Truth()) return left;
  if (expression.name == "or" && left.Truth()) return left;
  DS_ASSIGN_OR_RETURN(Value right, EvaluateChild(expression, 1, scope));
  if (expression.name == "and" || expression.name == "or") return right;
  return Compute(expression.name, left, right);
}

StatusOr<Value> Renderer::Compute(const std::string& name, const Value& left, const Value& right) {
  constexpr std::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  if (std::find(std::begin(kComparisons), std::end(kComparisons), name) != std::end(kComparisons)) {
    const bool searches = name == "in" || name == "not in";
    DS_RETURN_IF_ERROR(
        budget_.Spend(searches ? SearchCost(right, left) : ComparisonCost(left, right)));
    return CompareValues(name, left, right);
  }
  if (name == "~") {
    DS_RETURN_IF_ERROR(budget_.Spend(left.shape().weight));
    DS_RETURN_IF_ERROR(budget_.Spend(right.shape().weight));
    return Value(left.Str() + right.Str()).WithOrigin(MergeOrigins(left.origin(), right.origin()));
  }
  if (left.is_number() && right.is_number()) return ComputeNumbers(name, left, right);
  if (name == "+" && left.text() != nullptr && right.text() != nullptr) {
    DS_RETURN_IF_ERROR(Spend(left.text()->size() + right.text()->size()));
    return Value(*left.text() + *right.text())
        .WithOrigin(MergeOrigins(left.origin(), right.origin()));
  }
  if (name == "+" && left.list() != nullptr && right.list() != nullptr) {
    DS_RETURN_IF_ERROR(Spend(ElementsCost(left) + ElementsCost(right)));
    ValueList list = *left.list();
    list.insert(list.end(), right.list()->begin(), right.list()->end());
    return Value(std::move(list));
  }
  const bool repeats = name == "*" && left.text() != nullptr && right.As<std::int64_t>() != nullptr;
  if (repeats) {
    const std::int64_t count = std::max<std::int64_t>(0, *right.As<std::int64_t>());
    DS_RETURN_IF_ERROR(budget_.Spend(static_cast<std::uint64_t>(count), left.text()->size() + 1));
    std::string text;
    for (std::int64_t i = 0; i < count; ++i) text += *left.text();
    return Value(std::move(text)).WithOrigin(left.origin());
  }
  return OperandError(name, left, right);
}

StatusOr<Arguments> Renderer::EvaluateArguments(const Expression& expression,
                                                const ScopePtr& scope) {
  Arguments arguments{&budget_, {}, {}};
  for (std::size_t i = 1; i < expression.children.size(); ++i) {
    DS_ASSIGN_OR_RETURN(Value value, EvaluateChild(expression, i, scope));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, child] : expression.named) {
    DS_ASSIGN_OR_RETURN(Value value, Evaluate(*child, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

StatusOr<Value> Renderer::EvaluateCall(const Expression& call, const ScopePtr& scope) {
  DS_ASSIGN_OR_RETURN(const Value called, EvaluateChild(call, 0, scope));
  const auto* callable = called.As<Callable>();
  if (callable == nullptr) return TypeError("only functions can be called", called);
  DS_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(call, scope));
  if (callable->macro != nullptr) return CallMacro(*callable, arguments);
  if (callable->self == nullptr) return CallFunction(callable->name, arguments);
  if (callable->name == "loop.cycle") {
    if (arguments.positional.empty()) return InvalidArgumentError("cycle needs values");
    const auto iteration = static_cast<std::size_t>(*callable->self->As<std::int64_t>());
    return arguments.positional[iteration % arguments.positional.size()];
  }
  return CallMethod(*callable->self, callable->name, arguments);
}

StatusOr<Value> Renderer::CallFunction(const std::string& name, const Arguments& arguments) {
  if (name == "raise_exception") {
    const Value* message = arguments.Find(0, "message");
    return InvalidArgumentError("the template raised: " +
                                (message == nullptr ? "" : message->Str()));
  }
  if (name == "strftime_now") {
    DS_ASSIGN_OR_RETURN(const std::string format, arguments.Text(0, "format", ""));
    return Value(FormatTime(format, now_));
  }
  if (name == "namespace") {
    DS_ASSIGN_OR_RETURN(ValueDict dict, DictOf(arguments));
    Value::Namespace space{std::make_shared<ValueDict>(std::move(dict))};
    for (const auto& [key, value] : space.values->entries) {
      if (!value.shape().has_namespace) continue;
      return PermissionDeniedError("a namespace may not hold another one");
    }
    return Value(std::move(space));
  }
  if (name == "dict") {
    DS_ASSIGN_OR_RETURN(ValueDict dict, DictOf(arguments));
    return Value(std::move(dict));
  }
  DS_ASSIGN_OR_RETURN(Value range, MakeRange(arguments));
  DS_RETURN_IF_ERROR(Spend(sizeof(Value) * range.list()->size()));
  return range;
}

}  // namespace ds::tokenizer
