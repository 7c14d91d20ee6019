#include "runtime/tokenizer/chat/expression_parser.h"

#include <algorithm>

#include "runtime/base/printable.h"

namespace ds::tokenizer {
namespace {

constexpr int kDeepest = 60;
constexpr int kTallest = 400;  // a + b + c ... is a tree that leans to the left

// Operators from the lowest to the highest precedence; unary ones bind tighter.
constexpr std::string_view kLevels[][4] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
constexpr int kLevelCount = 4;

class Deeper {
 public:
  explicit Deeper(int* depth) : depth_(depth) { ++*depth_; }
  ~Deeper() { --*depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  int* depth_;
};

}  // namespace

std::unique_ptr<Expression> ExpressionParser::Make(ExpressionKind kind, std::string name) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->name = std::move(name);
  made->line = current().line;
  return made;
}

StatusOr<ExpressionPtr> ExpressionParser::Seal(std::unique_ptr<Expression> made) const {
  const auto adopt = [&](const ExpressionPtr& child) {
    if (child != nullptr) made->height = std::max(made->height, child->height + 1);
  };
  for (const ExpressionPtr& child : made->children) adopt(child);
  for (const auto& [name, child] : made->named) adopt(child);
  if (made->height <= kTallest) return ExpressionPtr(std::move(made));
  return InvalidArgumentError("line " + std::to_string(made->line) +
                              ": an expression has too many parts");
}

bool ExpressionParser::Skip(LexemeKind kind, std::string_view text) {
  if (!Is(kind, text)) return false;
  Take();
  return true;
}

Status ExpressionParser::Expect(LexemeKind kind, std::string_view text) {
  if (Skip(kind, text)) return OkStatus();
  return Unexpected();
}

StatusOr<std::string> ExpressionParser::ExpectName() {
  if (!Is(LexemeKind::kName)) return Unexpected();
  return Take().text;
}

Status ExpressionParser::Unexpected() const {
  const Lexeme& found = current();
  std::string what = "'" + Printable(found.text) + "'";
  if (found.kind == LexemeKind::kConstant) what = found.constant.Repr();
  if (found.kind == LexemeKind::kBlockEnd || found.kind == LexemeKind::kVariableEnd) {
    what = "the end of the tag";
  }
  if (found.kind == LexemeKind::kEnd) what = "the end of the template";
  return InvalidArgumentError("line " + std::to_string(found.line) + ": unexpected " + what);
}

StatusOr<ExpressionPtr> ExpressionParser::ParseExpression() {
  const Deeper deeper(&depth_);
  if (depth_ > kDeepest) {
    return InvalidArgumentError("line " + std::to_string(current().line) +
                                ": expressions are nested too deep");
  }
  DS_ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
  while (Skip(LexemeKind::kName, "if")) {
    auto made = Make(ExpressionKind::kCondition);
    DS_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    made->children.push_back(std::move(condition));
    made->children.push_back(std::move(value));
    ExpressionPtr otherwise;
    if (Skip(LexemeKind::kName, "else")) {
      DS_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    made->children.push_back(std::move(otherwise));
    DS_ASSIGN_OR_RETURN(value, Seal(std::move(made)));
  }
  return value;
}

StatusOr<ExpressionPtr> ExpressionParser::ParseTuple() {
  DS_ASSIGN_OR_RETURN(ExpressionPtr first, ParseExpression());
  if (!IsOperator(",")) return first;
  auto list = Make(ExpressionKind::kList);
  list->children.push_back(std::move(first));
  while (Skip(LexemeKind::kOperator, ",")) {
    const bool ends = Is(LexemeKind::kBlockEnd) || Is(LexemeKind::kVariableEnd) || IsOperator(")");
    if (ends) break;
    DS_ASSIGN_OR_RETURN(ExpressionPtr next, ParseExpression());
    list->children.push_back(std::move(next));
  }
  return Seal(std::move(list));
}

StatusOr<ExpressionPtr> ExpressionParser::ParseOr() {
  DS_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (Skip(LexemeKind::kName, "or")) {
    auto made = Make(ExpressionKind::kBinary, "or");
    DS_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    made->children.push_back(std::move(left));
    made->children.push_back(std::move(right));
    DS_ASSIGN_OR_RETURN(left, Seal(std::move(made)));
  }
  return left;
}

StatusOr<ExpressionPtr> ExpressionParser::ParseAnd() {
  DS_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (Skip(LexemeKind::kName, "and")) {
    auto made = Make(ExpressionKind::kBinary, "and");
    DS_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    made->children.push_back(std::move(left));
    made->children.push_back(std::move(right));
    DS_ASSIGN_OR_RETURN(left, Seal(std::move(made)));
  }
  return left;
}

StatusOr<ExpressionPtr> ExpressionParser::ParseNot() {
  const Deeper deeper(&depth_);
  if (depth_ > kDeepest) return Unexpected();
  if (!IsName("not")) return ParseCompare();
  auto made = Make(ExpressionKind::kNot);
  Take();
  DS_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  made->children.push_back(std::move(operand));
  return Seal(std::move(made));
}

// a < b < c compares neighbours. Since operands have no side effects, it becomes (a < b) and (b <
// c), with b parsed once and evaluated twice.
StatusOr<ExpressionPtr> ExpressionParser::ParseCompare() {
  constexpr std::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">="};
  DS_ASSIGN_OR_RETURN(ExpressionPtr left, ParseBinary(0));
  bool chained = false;
  while (true) {
    std::string name;
    for (const std::string_view each : kComparisons) {
      if (IsOperator(each)) name = each;
    }
    if (IsName("in")) name = "in";
    const bool not_in = IsName("not") && at_ + 1 < lexemes_.size() &&
                        lexemes_[at_ + 1].kind == LexemeKind::kName &&
                        lexemes_[at_ + 1].text == "in";
    if (not_in) name = "not in";
    if (name.empty()) return left;
    if (chained) {
      return UnimplementedError("line " + std::to_string(current().line) +
                                ": dsrun does not support comparisons of more than two values");
    }
    chained = true;
    auto made = Make(ExpressionKind::kBinary, name);
    Take();
    if (not_in) Take();
    DS_ASSIGN_OR_RETURN(ExpressionPtr right, ParseBinary(0));
    made->children.push_back(std::move(left));
    made->children.push_back(std::move(right));
    DS_ASSIGN_OR_RETURN(left, Seal(std::move(made)));
  }
}

StatusOr<ExpressionPtr> ExpressionParser::ParseBinary(int level) {
  if (level == kLevelCount) return ParseUnary(true);
  DS_ASSIGN_OR_RETURN(ExpressionPtr left, ParseBinary(level + 1));
  while (true) {
    const auto& names = kLevels[level];
    const auto found = std::find_if(std::begin(names), std::end(names), [&](std::string_view name) {
      return !name.empty() && IsOperator(name);
    });
    if (found == std::end(names)) return left;
    auto made = Make(ExpressionKind::kBinary, std::string(*found));
    Take();
    DS_ASSIGN_OR_RETURN(ExpressionPtr right, ParseBinary(level + 1));
    made->children.push_back(std::move(left));
    made->children.push_back(std::move(right));
    DS_ASSIGN_OR_RETURN(left, Seal(std::move(made)));
  }
}

StatusOr<ExpressionPtr> ExpressionParser::ParseUnary(bool with_filters) {
  const Deeper deeper(&depth_);
  if (depth_ > kDeepest) return Unexpected();
  ExpressionPtr value;
  if (IsOperator("-") || IsOperator("+")) {
    auto made = Make(IsOperator("-") ? ExpressionKind::kNegative : ExpressionKind::kPositive);
    Take();
    DS_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
    made->children.push_back(std::move(operand));
    DS_ASSIGN_OR_RETURN(value, Seal(std::move(made)));
  } else {
    DS_ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  DS_ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  return with_filters ? ParseFilters(std::move(value)) : std::move(value);
}

StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  if (Is(LexemeKind::kName)) {
    auto made = Make(ExpressionKind::kName);
    made->name = Take().text;
    const std::string& name = made->name;
    const bool is_true = name == "true" || name == "True";
    const bool is_none = name == "none" || name == "None";
    if (is_true || is_none || name == "false" || name == "False") {
      made->kind = ExpressionKind::kConstant;
      made->constant = is_none ? Value(Value::None{}) : Value(is_true);
    }
    return Seal(std::move(made));
  }
  if (Is(LexemeKind::kConstant)) {
    auto made = Make(ExpressionKind::kConstant);
    made->constant = Take().constant;
    // Adjacent strings are concatenated.
    while (made->constant.text() != nullptr && Is(LexemeKind::kConstant) &&
           current().constant.text() != nullptr) {
      made->constant = Value(*made->constant.text() + *Take().constant.text());
    }
    return Seal(std::move(made));
  }
  if (IsOperator("(")) {
    Take();
    if (Skip(LexemeKind::kOperator, ")")) return ExpressionPtr(Make(ExpressionKind::kList));
    DS_ASSIGN_OR_RETURN(ExpressionPtr inner, ParseTuple());
    DS_RETURN_IF_ERROR(Expect(LexemeKind::kOperator, ")"));
    return inner;
  }
  if (IsOperator("[")) return ParseBrackets();
  if (IsOperator("{")) return ParseDict();
  return Unexpected();
}

StatusOr<ExpressionPtr> ExpressionParser::ParseBrackets() {
  auto list = Make(ExpressionKind::kList);
  Take();
  while (!Skip(LexemeKind::kOperator, "]")) {
    if (!list->children.empty()) DS_RETURN_IF_ERROR(Expect(LexemeKind::kOperator, ","));
    if (Skip(LexemeKind::kOperator, "]")) break;
    DS_ASSIGN_OR_RETURN(ExpressionPtr element, ParseExpression());
    list->children.push_back(std::move(element));
  }
  return Seal(std::move(list));
}

StatusOr<ExpressionPtr> ExpressionParser::ParseDict() {
  auto dict = Make(ExpressionKind::kDict);
  Take();
  while (!Skip(LexemeKind::kOperator, "}")) {
    if (!dict->children.empty()) DS_RETURN_IF_ERROR(Expect(LexemeKind::kOperator, ","));
    if (Skip(LexemeKind::kOperator, "}")) break;
    DS_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    DS_RETURN_IF_ERROR(Expect(LexemeKind::kOperator, ":"));
    DS_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    dict->children.push_back(std::move(key));
    dict->children.push_back(std::move(value));
  }
  return Seal(std::move(dict));
}

StatusOr<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr operand) {
  while (true) {
    if (IsOperator(".")) {
      auto made = Make(ExpressionKind::kAttribute);
      Take();
      if (Is(LexemeKind::kConstant) && current().constant.As<std::int64_t>() != nullptr) {
        auto index = Make(ExpressionKind::kConstant);
        index->constant = Take().constant;
        made->kind = ExpressionKind::kItem;
        made->children.push_back(std::move(operand));
        made->children.push_back(std::move(index));
      } else {
        DS_ASSIGN_OR_RETURN(made->name, ExpectName());
        made->children.push_back(std::move(operand));
      }
      DS_ASSIGN_OR_RETURN(operand, Seal(std::move(made)));
    } else if (IsOperator("[")) {
      DS_ASSIGN_OR_RETURN(operand, ParseSubscript(std::move(operand)));
    } else if (IsOperator("(")) {
      auto made = Make(ExpressionKind::kCall);
      made->children.push_back(std::move(operand));
      DS_RETURN_IF_ERROR(ParseArguments(made.get()));
      DS_ASSIGN_OR_RETURN(operand, Seal(std::move(made)));
    } else {
      return operand;
    }
  }
}

StatusOr<ExpressionPtr> ExpressionParser::ParseSubscript(ExpressionPtr operand) {
  auto made = Make(ExpressionKind::kItem);
  Take();
  made->children.push_back(std::move(operand));
  while (true) {
    ExpressionPtr bound;
    if (!IsOperator(":") && !IsOperator("]")) {
      DS_ASSIGN_OR_RETURN(bound, ParseExpression());
    }
    made->children.push_back(std::move(bound));
    if (!Skip(LexemeKind::kOperator, ":")) break;
    made->kind = ExpressionKind::kSlice;
    if (made->children.size() > 3) return Unexpected();
  }
  DS_RETURN_IF_ERROR(Expect(LexemeKind::kOperator, "]"));
  if (made->kind == ExpressionKind::kItem && made->children[1] == nullptr) return Unexpected();
  if (made->kind == ExpressionKind::kSlice) made->children.resize(4);
  return Seal(std::move(made));
}

Status ExpressionParser::ParseArguments(Expression* call) {
  DS_RETURN_IF_ERROR(Expect(LexemeKind::kOperator, "("));
  bool first = true;
  while (!Skip(LexemeKind::kOperator, ")")) {
    if (!first) DS_RETURN_IF_ERROR(Expect(LexemeKind::kOperator, ","));
    first = false;
    if (Skip(LexemeKind::kOperator, ")")) break;
    const bool is_named = Is(LexemeKind::kName) &&
                          lexemes_[at_ + 1].kind == LexemeKind::kOperator &&
                          lexemes_[at_ + 1].text == "=";
    std::string name;
    if (is_named) {
      name = Take().text;
      Take();
    }
    DS_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    if (is_named) {
      call->named.emplace_back(std::move(name), std::move(value));
    } else {
      call->children.push_back(std::move(value));
    }
  }
  return OkStatus();
}

StatusOr<ExpressionPtr> ExpressionParser::ParseFilters(ExpressionPtr operand) {
  while (true) {
    if (IsOperator("|")) {
      DS_ASSIGN_OR_RETURN(operand, ParseFilter(std::move(operand)));
    } else if (IsName("is")) {
      DS_ASSIGN_OR_RETURN(operand, ParseTest(std::move(operand)));
    } else if (IsOperator("(")) {
      DS_ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
    } else {
      return operand;
    }
  }
}

StatusOr<ExpressionPtr> ExpressionParser::ParseFilter(ExpressionPtr operand) {
  auto made = Make(ExpressionKind::kFilter);
  Take();
  DS_ASSIGN_OR_RETURN(made->name, ExpectName());
  made->children.push_back(std::move(operand));
  if (IsOperator("(")) DS_RETURN_IF_ERROR(ParseArguments(made.get()));
  return Seal(std::move(made));
}

StatusOr<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr operand) {
  Take();
  const bool negated = Skip(LexemeKind::kName, "not");
  auto made = Make(ExpressionKind::kTest);
  DS_ASSIGN_OR_RETURN(made->name, ExpectName());
  made->children.push_back(std::move(operand));
  const bool has_operand = (Is(LexemeKind::kName) && !IsName("else") && !IsName("or") &&
                            !IsName("and") && !IsName("if") && !IsName("is")) ||
                           Is(LexemeKind::kConstant) || IsOperator("[") || IsOperator("{");
  if (IsOperator("(")) {
    DS_RETURN_IF_ERROR(ParseArguments(made.get()));
  } else if (has_operand) {
    DS_ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
    DS_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    made->children.push_back(std::move(argument));
  }
  if (!negated) return Seal(std::move(made));
  auto inverted = Make(ExpressionKind::kNot);
  DS_ASSIGN_OR_RETURN(ExpressionPtr test, Seal(std::move(made)));
  inverted->children.push_back(std::move(test));
  return Seal(std::move(inverted));
}

}  // namespace ds::tokenizer
