#pragma once

// ExpressionParser parses Jinja expressions by recursive descent. Nesting is bounded.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/chat/syntax.h"
#include "runtime/tokenizer/chat/value.h"

namespace ds::tokenizer {

// Splits a Jinja template into lexemes, as Jinja 3 does with trim_blocks and lstrip_blocks, the
// options that transformers uses for chat templates. Pure.

enum class LexemeKind {
  kData,  // text that is output as it is
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kConstant,  // a number or a string
  kOperator,
  kEnd,
};

struct Lexeme {
  LexemeKind kind = LexemeKind::kEnd;
  std::string text;  // of data, names and operators
  Value constant;
  int line = 0;
};

// Errors name the line of the template.
StatusOr<std::vector<Lexeme>> ReadLexemes(std::string_view source);

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Lexeme> lexemes) : lexemes_(std::move(lexemes)) {}

  const Lexeme& current() const { return lexemes_[at_]; }
  Lexeme Take() { return lexemes_[at_ + 1 < lexemes_.size() ? at_++ : at_]; }
  bool Is(LexemeKind kind, std::string_view text = {}) const {
    return current().kind == kind && (text.empty() || current().text == text);
  }
  bool IsOperator(std::string_view text) const { return Is(LexemeKind::kOperator, text); }
  bool IsName(std::string_view text) const { return Is(LexemeKind::kName, text); }
  // Consumes the operator or name if it is next; returns false otherwise.
  bool Skip(LexemeKind kind, std::string_view text);
  Status Expect(LexemeKind kind, std::string_view text);
  StatusOr<std::string> ExpectName();
  Status Unexpected() const;

  // Parses an expression with a condition: a if b else c.
  StatusOr<ExpressionPtr> ParseExpression();
  // Parses an expression without one, for the iterable of a loop: for x in a if b.
  StatusOr<ExpressionPtr> ParseOr();
  // Parses expressions; several, separated by commas, make a list.
  StatusOr<ExpressionPtr> ParseTuple();
  // Parses the filters after an operand: | a | b(c).
  StatusOr<ExpressionPtr> ParseFilters(ExpressionPtr operand);

 private:
  StatusOr<ExpressionPtr> ParseAnd();
  StatusOr<ExpressionPtr> ParseNot();
  StatusOr<ExpressionPtr> ParseCompare();
  StatusOr<ExpressionPtr> ParseBinary(int level);
  StatusOr<ExpressionPtr> ParseUnary(bool with_filters);
  StatusOr<ExpressionPtr> ParsePrimary();
  StatusOr<ExpressionPtr> ParseBrackets();
  StatusOr<ExpressionPtr> ParseDict();
  StatusOr<ExpressionPtr> ParsePostfix(ExpressionPtr operand);
  StatusOr<ExpressionPtr> ParseSubscript(ExpressionPtr operand);
  StatusOr<ExpressionPtr> ParseFilter(ExpressionPtr operand);
  StatusOr<ExpressionPtr> ParseTest(ExpressionPtr operand);
  Status ParseArguments(Expression* call);
  // Finishes an expression. Rejects one that is too tall to be walked recursively.
  StatusOr<ExpressionPtr> Seal(std::unique_ptr<Expression> made) const;
  std::unique_ptr<Expression> Make(ExpressionKind kind, std::string name = "") const;

  std::vector<Lexeme> lexemes_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace ds::tokenizer
