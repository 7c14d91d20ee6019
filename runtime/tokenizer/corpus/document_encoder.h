#pragma once

// DocumentEncoder: texts and rows (row.h) as the token ids that a model is trained on, and which of
// them it is to learn.
//
// A text, and a completion of a text, is followed by the folder's end-of-text token. A conversation
// is written by the folder's chat template, which writes its own ends. Ids and learnt
// tokens of prompts with completions equal those of TRL's SFTTrainer.
//
// Threads: one.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/corpus/row.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::tokenizer {

struct EncodedDocument {
  std::vector<std::uint32_t> ids = {};
  std::vector<bool> learnt = {};  // by token; empty: all of them

  // Then there are no ids.
  enum class LeftOut { kNo, kRejected, kTooLong };
  LeftOut left_out = LeftOut::kNo;

  // True when a token is learnt, or all are.
  bool learns() const;
};

class DocumentEncoder {
 public:
  // `folder` outlives this.
  DocumentEncoder(const TokenizerFolder& folder, DocumentOptions options)
      : folder_(folder), options_(std::move(options)), encoder_(folder.tokenizer) {}

  StatusOr<EncodedDocument> EncodeText(std::string_view text);
  StatusOr<EncodedDocument> EncodeLine(std::string_view line);

 private:
  StatusOr<EncodedDocument> EncodeRow(const Row& row);
  StatusOr<EncodedDocument> EncodeWholeText(std::string_view text);
  StatusOr<EncodedDocument> EncodeChat(const ChatRow& chat);
  // Learns from the first token on that differs from the tokens of the prompt alone.
  StatusOr<EncodedDocument> EncodeCompletion(std::string_view prompt, std::string_view whole,
                                             bool special_tokens);
  // The bytes of `text` in `learnt` are what is learnt.
  StatusOr<EncodedDocument> EncodePartly(std::string_view text, const std::vector<Span>& learnt);
  void End(EncodedDocument* document) const;
  EncodedDocument CutOff(EncodedDocument document) const;

  const TokenizerFolder& folder_;
  const DocumentOptions options_;
  Encoder encoder_;
};

}  // namespace ds::tokenizer
