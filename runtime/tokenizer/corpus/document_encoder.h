#pragma once

// DocumentEncoder: texts and lines of .jsonl files as the token ids that a model is trained on, and
// which of them it is to learn.
//
// A line is an object with "messages", written by the folder's chat template, of which the
// assistant's words are learnt; or with "prompt" and "completion", of which the completion is; or
// with "chosen" and "rejected", answers or whole conversations as text or messages, with a "prompt"
// or without: there what both begin with is the prompt, and what is chosen behind it is learnt; or
// with a text. A text, and a completion, is followed by the folder's end-of-text token.
//
// Threads: one.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::tokenizer {

struct EncodedDocument {
  std::vector<std::uint32_t> ids;
  std::vector<bool> learnt;  // by token; empty: all of them
};

class DocumentEncoder {
 public:
  // `folder` outlives this. `text_field` is where a line's text is; empty: a line is any of the
  // above, and its text is under "text".
  DocumentEncoder(const TokenizerFolder& folder, std::string text_field)
      : folder_(folder), text_field_(std::move(text_field)), encoder_(folder.tokenizer) {}

  StatusOr<EncodedDocument> EncodeText(std::string_view text);
  StatusOr<EncodedDocument> EncodeLine(std::string_view line);

 private:
  // Learns all of the assistant's messages but the first `known`.
  StatusOr<EncodedDocument> EncodeMessages(const nlohmann::ordered_json& messages,
                                           const nlohmann::ordered_json& line,
                                           std::size_t known = 0);
  StatusOr<EncodedDocument> EncodeCompletion(const std::string& prompt,
                                             const std::string& completion);
  StatusOr<EncodedDocument> EncodeChosen(const nlohmann::ordered_json& line);
  // The bytes of `text` in `learnt` are what is learnt.
  StatusOr<EncodedDocument> EncodePartly(std::string_view text, const std::vector<Span>& learnt,
                                         bool special_tokens);
  StatusOr<std::vector<Span>> FindAssistant(const nlohmann::ordered_json& messages,
                                            const ChatOptions& options, const RenderedChat& whole);
  void End(EncodedDocument* document) const;

  const TokenizerFolder& folder_;
  const std::string text_field_;
  Encoder encoder_;
};

}  // namespace ds::tokenizer
