#pragma once

// FindAssistant finds the parts of a rendered conversation that contribute to the loss: the words
// of the assistant's messages, as TRL's training templates mark them.
//
// A template with {% generation %} blocks marks them itself. For every other template they are
// found in one rendering of the full conversation, since many templates render a message
// differently once more messages follow:
// - A message's part of the text is the output of its iteration of a loop over the messages
//   (RenderedChat::turns). Tool results that a template writes within the calling message's
//   iteration are not part of it.
// - The part begins with a header, which does not contribute to the loss. The header is the text
//   that the template adds as a generation prompt after the preceding messages. Where the prompt
//   opens the model's thinking, the header ends before that.
// - The part ends with the end-of-turn mark, which contributes to the loss, together with line
//   breaks but not spaces after it. For the last message it is the eos_token that ends the
//   conversation, if there is one. For a template without such a mark (GLM) it is the special token
//   that begins the next turn.
//
// If spans cannot be found, the error is kUnimplemented and names the message and the problem. If
// the template omits all words of a message, or one of its calls, the error is kInvalidArgument.
// Thread-safe.

#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::tokenizer {

struct AssistantSpan {
  std::size_t message = 0;  // index of the assistant's message; it may have several spans
  Span span;
};

// Returns the spans in the order of the text. `full` is the rendering of these messages and
// options by folder.chat_template, without a generation prompt.
StatusOr<std::vector<AssistantSpan>> FindAssistant(const TokenizerFolder& folder,
                                                   const nlohmann::ordered_json& messages,
                                                   const ChatOptions& options,
                                                   const RenderedChat& full);

}  // namespace ds::tokenizer
