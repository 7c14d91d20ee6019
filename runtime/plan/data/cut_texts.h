#pragma once

// TextCutter: the texts of a job's data as token ids, one document after the other. What is kept of
// them is its caller's choice: FindOrCutTokens writes all of it to a cache, TryData
// (try_data.h) looks at the first ones.
//
// Threads: one.

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
  std::vector<std::string> files;  // that tokenizer::ListDataFiles has found
  std::filesystem::path tokenizer;
  std::string data_field;  // of .json files (tokenizer::DocumentReader)
  tokenizer::DocumentOptions documents;
  bool skip_bad_data = false;  // passes over texts that cannot be used, in place of an error
};

// Counts the texts that are no documents, and those that teach nothing.
struct LeftOutTexts {
  std::int64_t skipped = 0;
  std::string first_skipped;  // which, and why
  // Rows that are left out: their label is false, or cut off they have nothing to learn.
  std::int64_t rejected = 0, cut_empty = 0;
  // Rows that stay without a learnt token: conversations in which nobody is the assistant.
  std::int64_t unlearnt = 0;
  std::string first_unlearnt;  // its place
};

class TextCutter {
 public:
  // Reads the tokenizer.
  static StatusOr<std::unique_ptr<TextCutter>> Open(const TokenRequest& request);

  // Takes a document; `place` is its file, and the line of a row.
  using Keep =
      std::function<Status(const tokenizer::EncodedDocument& document, const std::string& place)>;
  // Encodes a text, or a row, and keeps it unless it is left out. Errors of the text name its
  // place, and are counted where the request asks for it; others are those of `keep`.
  Status Cut(std::string_view text, bool is_row, const std::string& place, const Keep& keep);

  // OK once a document has had a token that is learnt and follows another. Else the error says what
  // has been left out.
  Status CheckLearns() const;

  const LeftOutTexts& left_out() const { return left_out_; }
  std::uint32_t id_limit() const { return folder_.tokenizer.id_limit(); }

 private:
  TextCutter(tokenizer::TokenizerFolder folder, const TokenRequest& request)
      : folder_(std::move(folder)),
        skip_bad_data_(request.skip_bad_data),
        encoder_(folder_, request.documents) {}

  const tokenizer::TokenizerFolder folder_;
  const bool skip_bad_data_;
  tokenizer::DocumentEncoder encoder_;
  LeftOutTexts left_out_;
  bool has_tokens_ = false, learns_ = false;
};

}  // namespace ds::data
