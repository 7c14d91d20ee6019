#pragma once

// The words of a Jinja template, as Jinja 3 reads it with trim_blocks and lstrip_blocks, which is
// how transformers reads chat templates. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/chat/value.h"

namespace ds::tokenizer {

enum class LexemeKind {
  kData,  // text that is put out as it is
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kConstant,  // a number or a text
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

}  // namespace ds::tokenizer
