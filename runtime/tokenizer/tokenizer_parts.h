#pragma once

// TokenizerParts: what a Tokenizer is made of, whatever files it was read from.

#include <memory>
#include <optional>
#include <vector>

#include "runtime/tokenizer/added_tokens.h"
#include "runtime/tokenizer/decoders/decoder.h"
#include "runtime/tokenizer/models/model.h"
#include "runtime/tokenizer/normalizers/normalizer.h"
#include "runtime/tokenizer/post_processors/post_processor.h"
#include "runtime/tokenizer/pre_tokenizers/pre_tokenizer.h"
#include "runtime/tokenizer/truncation.h"

namespace ds::tokenizer {

struct TokenizerParts {
  std::unique_ptr<Normalizer> normalizer;  // may be null
  std::vector<std::unique_ptr<PreTokenizer>> pre_tokenizer;
  std::unique_ptr<Model> model;
  AddedTokens added;
  PostProcessor post_processor;
  std::optional<std::vector<std::unique_ptr<Decoder>>> decoder;  // without one, blanks join tokens
  std::optional<Truncation> truncation;
};

}  // namespace ds::tokenizer
