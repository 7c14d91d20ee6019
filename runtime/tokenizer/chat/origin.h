#pragma once

// Origin: the message that a text of a rendering comes from, as its index in the conversation.
//
// Values carry it through all operations on texts: a text that is cut, stripped, joined or written
// as JSON has the origin of its parts. Constants of the template and names of roles have none. The
// renderer uses it to prove that a part of its output holds no words of another message; the part
// itself it knows from the for loop over the messages (renderer.h). Pure.

#include <cstdint>

namespace ds::tokenizer {

using Origin = std::int32_t;

inline constexpr Origin kNoOrigin = -1;
inline constexpr Origin kManyOrigins = -2;

// The origin of a text that is made of two.
Origin MergeOrigins(Origin a, Origin b);

}  // namespace ds::tokenizer
