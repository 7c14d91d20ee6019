#pragma once

// TextTokenizer: converts the texts of a job's data to token ids, one document after the other. Its
// caller chooses the documents to keep: FindOrTokenize writes them all to a cache, TryData
// (try_data.h) checks the first ones.
//
// Not thread-safe.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/document_encoder.h"
#include "runtime/tokenizer/corpus/documents.h"

namespace ds::data {

struct TokenRequest {
  std::vector<std::string> files;  // found by tokenizer::ListDataFiles
  std::filesystem::path tokenizer;
  std::string data_field;  // of .json files (tokenizer::DocumentReader)
  tokenizer::DocumentOptions documents;
  bool skip_bad_data = false;  // skips unusable texts instead of failing
};

// Counts the texts that are skipped or left out, and those without a token in the loss.
struct OmittedTexts {
  std::int64_t skipped = 0;
  std::string first_skipped;  // its location and the reason
  // Rows that are left out: the label is false, or truncation leaves no token in the loss.
  std::int64_t rejected = 0, truncated_empty = 0;
  // Rows that stay although no token contributes to the loss: conversations without an assistant.
  std::int64_t without_loss = 0;
  std::string first_without_loss;  // its location
};

class TextTokenizer {
 public:
  // Reads the tokenizer.
  static StatusOr<std::unique_ptr<TextTokenizer>> Open(const TokenRequest& request);

  // Receives a document; `location` is its file, and the line number of a row.
  using Keep = std::function<Status(const tokenizer::EncodedDocument& document,
                                    const std::string& location)>;
  // Encodes a text or a row, and passes it to `keep` unless it is left out. Errors of the text name
  // its location; with skip_bad_data they are counted instead. Errors of `keep` are returned.
  Status Tokenize(std::string_view text, bool is_row, const std::string& location,
                  const Keep& keep);

  // OK if some document had a token that contributes to the loss and follows another token.
  // Otherwise the error reports the texts that were left out.
  Status CheckHasLoss() const;

  const OmittedTexts& left_out() const { return left_out_; }
  std::uint32_t id_limit() const { return folder_.tokenizer.id_limit(); }

 private:
  TextTokenizer(tokenizer::TokenizerFolder folder, const TokenRequest& request)
      : folder_(std::move(folder)),
        skip_bad_data_(request.skip_bad_data),
        encoder_(folder_, request.documents) {}

  const tokenizer::TokenizerFolder folder_;
  const bool skip_bad_data_;
  tokenizer::DocumentEncoder encoder_;
  OmittedTexts left_out_;
  bool has_tokens_ = false, learns_ = false;
};

}  // namespace ds::data
