#include <algorithm>

#include "runtime/base/printable.h"
#include "runtime/tokenizer/chat/expression_parser.h"
#include "runtime/tokenizer/chat/syntax.h"

namespace ds::tokenizer {
namespace {

constexpr int kDeepestBlock = 60;

class TemplateParser {
 public:
  explicit TemplateParser(std::vector<Lexeme> lexemes) : words_(std::move(lexemes)) {}

  StatusOr<StatementList> Run() {
    DS_ASSIGN_OR_RETURN(StatementList block, ParseBlock({}));
    if (!words_.Is(LexemeKind::kEnd)) return words_.Unexpected();
    return block;
  }

 private:
  using Ends = std::vector<std::string_view>;

  // Parses statements up to a tag with one of these names. Consumes the name and stores it in end_.
  StatusOr<StatementList> ParseBlock(const Ends& ends) {
    if (++depth_ > kDeepestBlock) return Refuse("blocks that are nested too deep");
    StatementList block;
    while (!words_.Is(LexemeKind::kEnd)) {
      auto statement = std::make_unique<Statement>();
      statement->line = words_.current().line;
      if (words_.Is(LexemeKind::kData)) {
        statement->text = words_.Take().text;
      } else if (words_.Skip(LexemeKind::kVariableBegin, "")) {
        statement->kind = StatementKind::kOutput;
        DS_ASSIGN_OR_RETURN(statement->value, words_.ParseTuple());
        DS_RETURN_IF_ERROR(words_.Expect(LexemeKind::kVariableEnd, ""));
      } else {
        DS_RETURN_IF_ERROR(words_.Expect(LexemeKind::kBlockBegin, ""));
        DS_ASSIGN_OR_RETURN(const std::string name, words_.ExpectName());
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
          end_ = name;
          --depth_;
          return block;
        }
        DS_RETURN_IF_ERROR(ParseStatement(name, statement.get()));
      }
      block.push_back(std::move(statement));
    }
    if (!ends.empty()) {
      return InvalidArgumentError("the template ends before a tag '" + std::string(ends.back()) +
                                  "'");
    }
    --depth_;
    return block;
  }

  Status Refuse(const std::string& what) const {
    return UnimplementedError("line " + std::to_string(words_.current().line) + ": " + what +
                              ": dsrun does not support that in chat templates");
  }

  Status EndTag() { return words_.Expect(LexemeKind::kBlockEnd, ""); }

  // Parses the rest of the tag, and its body up to the end tag.
  StatusOr<StatementList> BodyTo(std::string_view end) {
    DS_RETURN_IF_ERROR(EndTag());
    DS_ASSIGN_OR_RETURN(StatementList body, ParseBlock({end}));
    DS_RETURN_IF_ERROR(EndTag());
    return body;
  }

  Status ParseStatement(const std::string& name, Statement* statement) {
    if (name == "if") return ParseIf(statement);
    if (name == "for") return ParseFor(statement);
    if (name == "set") return ParseSet(statement);
    if (name == "macro") return ParseMacro(statement);
    if (name == "break" || name == "continue") {
      statement->kind = name == "break" ? StatementKind::kBreak : StatementKind::kContinue;
      return EndTag();
    }
    if (name == "generation") {
      statement->kind = StatementKind::kGeneration;
      DS_ASSIGN_OR_RETURN(statement->body, BodyTo("endgeneration"));
      return OkStatus();
    }
    return Refuse("the tag '" + Printable(name) + "'");
  }

  Status ParseIf(Statement* statement) {
    statement->kind = StatementKind::kIf;
    while (true) {
      DS_ASSIGN_OR_RETURN(ExpressionPtr condition, words_.ParseTuple());
      DS_RETURN_IF_ERROR(EndTag());
      DS_ASSIGN_OR_RETURN(StatementList body, ParseBlock({"elif", "else", "endif"}));
      statement->branches.emplace_back(std::move(condition), std::move(body));
      if (end_ == "elif") continue;
      if (end_ == "else") {
        DS_ASSIGN_OR_RETURN(statement->otherwise, BodyTo("endif"));
        return OkStatus();
      }
      return EndTag();
    }
  }

  Status ParseTargets(Statement* statement) {
    const bool brackets = words_.Skip(LexemeKind::kOperator, "(");
    do {
      DS_ASSIGN_OR_RETURN(std::string target, words_.ExpectName());
      statement->targets.push_back(std::move(target));
    } while (words_.Skip(LexemeKind::kOperator, ","));
    return brackets ? words_.Expect(LexemeKind::kOperator, ")") : OkStatus();
  }

  Status ParseFor(Statement* statement) {
    statement->kind = StatementKind::kFor;
    DS_RETURN_IF_ERROR(ParseTargets(statement));
    DS_RETURN_IF_ERROR(words_.Expect(LexemeKind::kName, "in"));
    DS_ASSIGN_OR_RETURN(statement->value, words_.ParseOr());
    if (words_.Skip(LexemeKind::kName, "if")) {
      DS_ASSIGN_OR_RETURN(statement->condition, words_.ParseExpression());
    }
    if (words_.IsName("recursive")) return Refuse("a recursive loop");
    DS_RETURN_IF_ERROR(EndTag());
    DS_ASSIGN_OR_RETURN(statement->body, ParseBlock({"else", "endfor"}));
    if (end_ == "else") {
      DS_ASSIGN_OR_RETURN(statement->otherwise, BodyTo("endfor"));
      return OkStatus();
    }
    return EndTag();
  }

  Status ParseSet(Statement* statement) {
    statement->kind = StatementKind::kSet;
    DS_RETURN_IF_ERROR(ParseTargets(statement));
    if (words_.Skip(LexemeKind::kOperator, ".")) {
      statement->space = statement->targets.front();
      DS_ASSIGN_OR_RETURN(statement->attribute, words_.ExpectName());
    }
    if (words_.Skip(LexemeKind::kOperator, "=")) {
      DS_ASSIGN_OR_RETURN(statement->value, words_.ParseTuple());
      return EndTag();
    }
    statement->kind = StatementKind::kSetBlock;
    auto text = std::make_unique<Expression>();
    text->kind = ExpressionKind::kName;
    text->name = kBlockText;
    DS_ASSIGN_OR_RETURN(statement->value, words_.ParseFilters(std::move(text)));
    DS_ASSIGN_OR_RETURN(statement->body, BodyTo("endset"));
    return OkStatus();
  }

  Status ParseMacro(Statement* statement) {
    statement->kind = StatementKind::kMacro;
    auto macro = std::make_shared<Macro>();
    DS_ASSIGN_OR_RETURN(macro->name, words_.ExpectName());
    DS_RETURN_IF_ERROR(words_.Expect(LexemeKind::kOperator, "("));
    while (!words_.Skip(LexemeKind::kOperator, ")")) {
      if (!macro->parameters.empty()) DS_RETURN_IF_ERROR(words_.Expect(LexemeKind::kOperator, ","));
      DS_ASSIGN_OR_RETURN(std::string parameter, words_.ExpectName());
      macro->parameters.push_back(std::move(parameter));
      ExpressionPtr otherwise;
      if (words_.Skip(LexemeKind::kOperator, "=")) {
        DS_ASSIGN_OR_RETURN(otherwise, words_.ParseExpression());
      }
      macro->defaults.push_back(std::move(otherwise));
    }
    DS_ASSIGN_OR_RETURN(macro->body, BodyTo("endmacro"));
    statement->macro = std::move(macro);
    return OkStatus();
  }

  ExpressionParser words_;
  std::string end_;
  int depth_ = 0;
};

}  // namespace

StatusOr<StatementList> ParseTemplate(std::string_view source) {
  DS_ASSIGN_OR_RETURN(std::vector<Lexeme> lexemes, ReadLexemes(source));
  return TemplateParser(std::move(lexemes)).Run();
}

}  // namespace ds::tokenizer
