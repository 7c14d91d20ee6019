#pragma once

// FindAssistant: the learnt parts of a rendered conversation, which are the words of the
// assistant's messages, as TRL's training templates mark them.
//
// A template with {% generation %} blocks marks them itself. For every other template they are
// found in one rendering of the whole conversation, since many templates write a message in another
// way once more messages follow:
//   - A message's part of the text is the output of that message's turn of a loop over the messages
//     (RenderedChat::turns). Answers of tools that a template writes inside of the calling turn are
//     no part of it.
//   - The part begins with a header, and the header is not learnt. It is the text that the template
//     adds for a generation prompt after the messages before this one. Where the prompt opens the
//     model's thinking, the header ends before that.
//   - The part ends with the mark of the end of a turn, which is learnt: with line breaks but
//     without spaces after it; for the last message with the eos_token that ends the conversation;
//     for a template without such a mark (GLM) the special token that begins the next turn.
//
// Spans that cannot be found are kUnimplemented, with the message and the trouble. Where the
// template leaves out all words of a message, or one of its calls, the error is kInvalidArgument.
// Threads: may be called concurrently.

#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::tokenizer {

struct AssistantSpan {
  std::size_t message = 0;  // index of the assistant's message; it may have several spans
  Span span;
};

// `whole` is the rendering of these messages and options by folder.chat_template, without a
// generation prompt. Returns the spans in the order of the text.
StatusOr<std::vector<AssistantSpan>> FindAssistant(const TokenizerFolder& folder,
                                                   const nlohmann::ordered_json& messages,
                                                   const ChatOptions& options,
                                                   const RenderedChat& whole);

}  // namespace ds::tokenizer
