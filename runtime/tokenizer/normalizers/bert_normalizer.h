#pragma once

// BertNormalizer: BERT's cleaning: no control characters, plain blanks, blanks around Chinese
// characters, no accents, lower case.

#include <memory>

#include "runtime/tokenizer/normalizers/normalizer.h"

namespace ds::tokenizer {

StatusOr<std::unique_ptr<Normalizer>> ReadBertNormalizer(const JsonObject& component);

// Puts the lower case of every character.
void ToLowerCase(AlignedText* text);

}  // namespace ds::tokenizer
