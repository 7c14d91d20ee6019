#pragma once

// TokenizationPipeline holds the components of a Tokenizer, which a text passes one after the
// other, independent of the files they were read from.

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

struct TokenizationPipeline {
  std::unique_ptr<Normalizer> normalizer;  // may be null
  std::vector<std::unique_ptr<PreTokenizer>> pre_tokenizer;
  std::unique_ptr<Model> model;
  AddedTokens added;
  PostProcessor post_processor;
  // Without a decoder, tokens are joined with blanks.
  std::optional<std::vector<std::unique_ptr<Decoder>>> decoder;
  std::optional<Truncation> truncation;
};

}  // namespace ds::tokenizer
