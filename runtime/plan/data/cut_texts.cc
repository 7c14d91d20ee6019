#include "runtime/plan/data/cut_texts.h"

#include <algorithm>
#include <utility>

namespace ds::data {
namespace {

// The first token of a document is no label, since it follows nothing.
bool HasLabels(const tokenizer::EncodedDocument& document) {
  if (document.ids.size() < 2) return false;
  const auto& learnt = document.learnt;
  return learnt.empty() || std::find(learnt.begin() + 1, learnt.end(), true) != learnt.end();
}

void Count(tokenizer::EncodedDocument::LeftOut left_out, LeftOutTexts* counts) {
  using LeftOut = tokenizer::EncodedDocument::LeftOut;
  if (left_out == LeftOut::kRejected) ++counts->rejected;
  if (left_out == LeftOut::kTooLong) ++counts->cut_empty;
}

}  // namespace

StatusOr<std::unique_ptr<TextCutter>> TextCutter::Open(const TokenRequest& request) {
  DS_ASSIGN_OR_RETURN(tokenizer::TokenizerFolder folder,
                      tokenizer::ReadTokenizerFolder(request.tokenizer));
  return std::unique_ptr<TextCutter>(new TextCutter(std::move(folder), request));
}

Status TextCutter::Cut(std::string_view text, bool is_row, const std::string& place,
                       const Keep& keep) {
  const auto document = is_row ? encoder_.EncodeLine(text) : encoder_.EncodeText(text);
  if (document.ok()) {
    Count(document->left_out, &left_out_);
    has_tokens_ |= !document->ids.empty();
    learns_ |= HasLabels(*document);
    if (!document->learns() && left_out_.unlearnt++ == 0) left_out_.first_unlearnt = place;
    return keep(*document, place);
  }
  const Status bad = document.status().WithContext(place);
  if (!skip_bad_data_) return bad;
  if (left_out_.skipped++ == 0) left_out_.first_skipped = std::string(bad.message());
  return OkStatus();
}

Status TextCutter::CheckLearns() const {
  if (learns_) return OkStatus();
  const LeftOutTexts& out = left_out_;
  std::string more;
  if (out.rejected > 0) {
    more += "; " + std::to_string(out.rejected) + " rows have a \"label\" that is false";
  }
  if (out.cut_empty > 0) {
    more +=
        "; " + std::to_string(out.cut_empty) + " rows have no trained token within --max_length";
  }
  if (out.skipped > 0) more += "; the first that was skipped: " + out.first_skipped;
  if (!has_tokens_ && out.rejected + out.cut_empty == 0) {
    return InvalidArgumentError("the data holds no text" + more);
  }
  return InvalidArgumentError(
      "the data contains no tokens that contribute to the loss: in conversations the messages of "
      "the role \"assistant\" do, after prompts the completions, in other texts all but the first "
      "token" +
      more);
}

}  // namespace ds::data
