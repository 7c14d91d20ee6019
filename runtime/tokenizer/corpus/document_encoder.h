#pragma once

// DocumentEncoder encodes texts and rows (row.h) as token ids for training, and marks the tokens
// that contribute to the loss.
//
// A text, and a completion of a text, is followed by the folder's end-of-text token. A conversation
// is rendered by the folder's chat template, which writes its own end tokens. For prompts with
// completions, the ids and the marked tokens equal TRL's SFTTrainer's.
//
// Not thread-safe.

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
  std::vector<bool> in_loss = {};  // per token: contributes to the loss; empty: all do

  // The reason why the document is left out. It then has no ids.
  enum class OmitReason { kNo, kRejected, kTooLong };
  OmitReason left_out = OmitReason::kNo;

  // Returns true if at least one token contributes to the loss.
  bool has_loss() const;
};

class DocumentEncoder {
 public:
  // `folder` must outlive this object.
  DocumentEncoder(const TokenizerFolder& folder, DocumentOptions options)
      : folder_(folder), options_(std::move(options)), encoder_(folder.tokenizer) {}

  StatusOr<EncodedDocument> EncodeText(std::string_view text);
  StatusOr<EncodedDocument> EncodeLine(std::string_view line);

 private:
  StatusOr<EncodedDocument> EncodeRow(const DataRow& row);
  StatusOr<EncodedDocument> EncodeFullText(std::string_view text);
  StatusOr<EncodedDocument> EncodeChat(const ChatRow& chat);
  // Computes the loss from the first token that differs from the tokens of the prompt alone.
  StatusOr<EncodedDocument> EncodeCompletion(std::string_view prompt, std::string_view full,
                                             bool special_tokens);
  // The byte ranges `in_loss` of `text` contribute to the loss.
  StatusOr<EncodedDocument> EncodePartly(std::string_view text, const std::vector<Span>& in_loss);
  void End(EncodedDocument* document) const;
  EncodedDocument Truncate(EncodedDocument document) const;

  const TokenizerFolder& folder_;
  const DocumentOptions options_;
  Encoder encoder_;
};

}  // namespace ds::tokenizer
