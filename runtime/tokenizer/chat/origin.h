#pragma once

// Origin is the message that a rendered text comes from, as its index in the conversation.
//
// Values carry it through all operations on texts: a text that is cut, stripped, joined or written
// as JSON has the origin of its parts. Constants of the template and role names have no origin. The
// renderer uses origins to prove that a part of its output has no words of another message. It
// finds the part itself from the for loop over the messages (renderer.h). Pure.

#include <cstdint>

namespace ds::tokenizer {

using Origin = std::int32_t;

inline constexpr Origin kNoOrigin = -1;
inline constexpr Origin kManyOrigins = -2;

// Returns the origin of a text composed of two parts.
Origin MergeOrigins(Origin a, Origin b);

}  // namespace ds::tokenizer
