#pragma once

// The syntax tree of a chat template: expressions and statements. template_parser.cc builds it, and
// renderer.h runs it.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/chat/value.h"

namespace ds::tokenizer {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

enum class ExpressionKind {
  kConstant,   // constant
  kName,       // name
  kList,       // children: elements; tuples are lists, too
  kDict,       // children: key, value, key, value ...
  kAttribute,  // children[0].name
  kItem,       // children[0][children[1]]
  kSlice,      // children[0][children[1]:children[2]:children[3]]; each bound may be null
  kCall,       // children[0](children[1]..., named)
  kFilter,     // children[0] | name(children[1]..., named)
  kTest,       // children[0] is name(children[1]..., named)
  kNot,        // children[0]
  kNegative,   // children[0]
  kPositive,   // children[0]
  kBinary,     // children[0] name children[1]; and, or, ==, in, + ...
  kCondition,  // children[1] if children[0] else children[2]; the last may be null
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> children;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  int line = 0;
  int height = 1;  // of this subtree, at least 1
};

struct Statement;
using StatementPtr = std::unique_ptr<const Statement>;
using StatementList = std::vector<StatementPtr>;

enum class StatementKind {
  kText,        // text
  kOutput,      // value
  kIf,          // branches, otherwise
  kFor,         // targets in value if condition: body; otherwise for no elements
  kSet,         // targets = value; or of a namespace: space.attribute = value
  kSetBlock,    // targets[0] = output of body, passed through the filters of value
  kMacro,       // macro
  kGeneration,  // body, the assistant's words
  kBreak,
  kContinue,
};

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // null: no default
  StatementList body;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  std::string text;
  std::vector<std::string> targets;
  std::string space, attribute;
  ExpressionPtr value, condition;
  std::vector<std::pair<ExpressionPtr, StatementList>> branches;
  StatementList body, otherwise;
  std::shared_ptr<const Macro> macro;
  int line = 0;
};

// In a kSetBlock statement, the innermost operand of `value` is this name. It stands for the output
// of the body.
inline constexpr std::string_view kBlockText = " text";

// Parses a template. Errors name the line. Unsupported statements (include, import, extends, call
// and filter blocks) are rejected by name.
StatusOr<StatementList> ParseTemplate(std::string_view source);

}  // namespace ds::tokenizer
