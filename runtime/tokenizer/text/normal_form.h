#pragma once

// NormalForm: Unicode's normal forms (UAX #15), with what an AlignedText needs to stay aligned.

#include "runtime/tokenizer/text/aligned_text.h"

namespace ds::tokenizer {

enum class NormalForm { kC, kD, kKc, kKd };

void Normalize(NormalForm form, AlignedText* text);

}  // namespace ds::tokenizer
