#pragma once

// NormalForm selects one of Unicode's normal forms (UAX #15). Normalize keeps an AlignedText
// aligned.

#include "runtime/tokenizer/text/aligned_text.h"

namespace ds::tokenizer {

enum class NormalForm { kC, kD, kKc, kKd };

void Normalize(NormalForm form, AlignedText* text);

}  // namespace ds::tokenizer
