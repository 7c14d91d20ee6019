#include "runtime/plan/data/text_tokenizer.h"

#include <algorithm>
#include <utility>

namespace ds::data {
namespace {

// The first token of a document is no label, since it follows nothing.
bool HasLabels(const tokenizer::EncodedDocument& document) {
  if (document.ids.size() < 2) return false;
  const auto& in_loss = document.in_loss;
  return in_loss.empty() || std::find(in_loss.begin() + 1, in_loss.end(), true) != in_loss.end();
}

void Count(tokenizer::EncodedDocument::OmitReason left_out, OmittedTexts* counts) {
  using OmitReason = tokenizer::EncodedDocument::OmitReason;
  if (left_out == OmitReason::kRejected) ++counts->rejected;
  if (left_out == OmitReason::kTooLong) ++counts->truncated_empty;
}

}  // namespace

StatusOr<std::unique_ptr<TextTokenizer>> TextTokenizer::Open(const TokenRequest& request) {
  DS_ASSIGN_OR_RETURN(tokenizer::TokenizerFolder folder,
                      tokenizer::ReadTokenizerFolder(request.tokenizer));
  return std::unique_ptr<TextTokenizer>(new TextTokenizer(std::move(folder), request));
}

Status TextTokenizer::Tokenize(std::string_view text, bool is_row, const std::string& location,
                               const Keep& keep) {
  const auto document = is_row ? encoder_.EncodeLine(text) : encoder_.EncodeText(text);
  if (document.ok()) {
    Count(document->left_out, &left_out_);
    has_tokens_ |= !document->ids.empty();
    learns_ |= HasLabels(*document);
    if (!document->has_loss() && left_out_.without_loss++ == 0)
      left_out_.first_without_loss = location;
    return keep(*document, location);
  }
  const Status bad = document.status().WithContext(location);
  if (!skip_bad_data_) return bad;
  if (left_out_.skipped++ == 0) left_out_.first_skipped = std::string(bad.message());
  return OkStatus();
}

Status TextTokenizer::CheckHasLoss() const {
  if (learns_) return OkStatus();
  const OmittedTexts& out = left_out_;
  std::string more;
  if (out.rejected > 0) {
    more += "; " + std::to_string(out.rejected) + " rows have a \"label\" that is false";
  }
  if (out.truncated_empty > 0) {
    more += "; " + std::to_string(out.truncated_empty) +
            " rows have no trained token within --max_length";
  }
  if (out.skipped > 0) more += "; the first that was skipped: " + out.first_skipped;
  if (!has_tokens_ && out.rejected + out.truncated_empty == 0) {
    return InvalidArgumentError("the data holds no text" + more);
  }
  return InvalidArgumentError(
      "the data contains no tokens that contribute to the loss: in conversations the messages of "
      "the role \"assistant\" do, after prompts the completions, in other texts all but the first "
      "token" +
      more);
}

}  // namespace ds::data
