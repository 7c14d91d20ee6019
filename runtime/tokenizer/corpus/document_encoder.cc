#include "runtime/tokenizer/corpus/document_encoder.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "runtime/tokenizer/corpus/assistant_spans.h"
#include "runtime/tokenizer/corpus/written_chat.h"

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Returns the spans of the messages that contribute to the loss.
std::vector<Span> SelectInLoss(const ChatRow& chat, const std::vector<AssistantSpan>& answers) {
  std::vector<Span> kept;
  for (const AssistantSpan& each : answers) {
    if (chat.in_loss[each.message]) kept.push_back(each.span);
  }
  return kept;
}

}  // namespace

bool EncodedDocument::has_loss() const {
  return in_loss.empty() || std::find(in_loss.begin(), in_loss.end(), true) != in_loss.end();
}

StatusOr<EncodedDocument> DocumentEncoder::EncodeText(std::string_view text) {
  DS_ASSIGN_OR_RETURN(EncodedDocument document, EncodeFullText(text));
  return Truncate(std::move(document));
}

StatusOr<EncodedDocument> DocumentEncoder::EncodeLine(std::string_view line) {
  DS_ASSIGN_OR_RETURN(const DataRow row,
                      ReadRow(line, options_.rows, folder_.chat_template.has_value()));
  DS_ASSIGN_OR_RETURN(EncodedDocument document, EncodeRow(row));
  return Truncate(std::move(document));
}

StatusOr<EncodedDocument> DocumentEncoder::EncodeRow(const DataRow& row) {
  if (const auto* chat = std::get_if<ChatRow>(&row)) return EncodeChat(*chat);
  if (options_.assistant_only && !std::holds_alternative<RejectedRow>(row)) {
    return InvalidArgumentError(
        "the row is a text, and --assistant_only_loss is for messages: leave the flag out");
  }
  if (const auto* text = std::get_if<TextRow>(&row)) return EncodeFullText(text->text);
  if (const auto* each = std::get_if<CompletionRow>(&row)) {
    DS_ASSIGN_OR_RETURN(EncodedDocument document,
                        EncodeCompletion(each->prompt, each->prompt + each->completion,
                                         /*special_tokens=*/true));
    End(&document);
    return document;
  }
  return EncodedDocument{.left_out = EncodedDocument::OmitReason::kRejected};
}

StatusOr<EncodedDocument> DocumentEncoder::EncodeFullText(std::string_view text) {
  DS_ASSIGN_OR_RETURN(Encoding encoding, encoder_.Encode(text, {.truncate = false}));
  EncodedDocument document{std::move(encoding.ids), {}};
  End(&document);
  return document;
}

StatusOr<EncodedDocument> DocumentEncoder::EncodeChat(const ChatRow& chat) {
  DS_ASSIGN_OR_RETURN(WrittenChat written, WriteChat(chat, folder_));
  const auto& [messages, options, full] = written;
  std::optional<EncodedDocument> answers;
  if (!chat.prompt_messages || options_.assistant_only) {
    DS_ASSIGN_OR_RETURN(const std::vector<AssistantSpan> spans,
                        FindAssistant(folder_, messages, options, full));
    DS_ASSIGN_OR_RETURN(answers, EncodePartly(full.text, SelectInLoss(chat, spans)));
  }
  if (!chat.prompt_messages) return *std::move(answers);
  const auto end = messages.begin() + static_cast<std::ptrdiff_t>(*chat.prompt_messages);
  const OrderedJson before(OrderedJson::array_t(messages.begin(), end));
  ChatOptions asked = options;
  asked.add_generation_prompt = true;
  DS_ASSIGN_OR_RETURN(const RenderedChat prompt, folder_.chat_template->Render(before, asked));
  DS_ASSIGN_OR_RETURN(EncodedDocument document,
                      EncodeCompletion(prompt.text, full.text, /*special_tokens=*/false));
  if (!answers) return document;
  std::transform(document.in_loss.begin(), document.in_loss.end(), answers->in_loss.begin(),
                 document.in_loss.begin(), std::logical_and<>());
  return document;
}

StatusOr<EncodedDocument> DocumentEncoder::EncodeCompletion(std::string_view prompt,
                                                            std::string_view full,
                                                            bool special_tokens) {
  const EncodeOptions options{.special_tokens = special_tokens, .truncate = false};
  DS_ASSIGN_OR_RETURN(const Encoding before, encoder_.Encode(prompt, options));
  DS_ASSIGN_OR_RETURN(Encoding encoding, encoder_.Encode(full, options));
  EncodedDocument document{std::move(encoding.ids), {}};
  const auto& ids = document.ids;
  const auto shared =
      std::mismatch(before.ids.begin(), before.ids.end(), ids.begin(), ids.end()).second;
  document.in_loss.assign(ids.size(), true);
  std::fill_n(document.in_loss.begin(), shared - ids.begin(), false);
  return document;
}

// The template has written the special tokens. A token that overlaps a span contributes to the
// loss, as in transformers: the blank after a header and the first letters of an answer may be one
// token.
StatusOr<EncodedDocument> DocumentEncoder::EncodePartly(std::string_view text,
                                                        const std::vector<Span>& in_loss) {
  DS_ASSIGN_OR_RETURN(
      Encoding encoding,
      encoder_.Encode(text, {.special_tokens = false, .offsets = true, .truncate = false}));
  EncodedDocument document{std::move(encoding.ids), {}};
  for (const Span& token : encoding.offsets) {
    document.in_loss.push_back(std::any_of(in_loss.begin(), in_loss.end(), [&](const Span& each) {
      return token.end > each.begin && token.begin < each.end;
    }));
  }
  return document;
}

void DocumentEncoder::End(EncodedDocument* document) const {
  if (!folder_.end_of_text) return;
  if (!document->ids.empty() && document->ids.back() == *folder_.end_of_text) return;
  document->ids.push_back(*folder_.end_of_text);
  if (!document->in_loss.empty()) document->in_loss.push_back(true);
}

// The end-of-text token is removed with the rest, as in TRL. A document that never had a loss token
// is kept.
EncodedDocument DocumentEncoder::Truncate(EncodedDocument document) const {
  if (options_.max_length == 0) return document;
  const auto most = static_cast<std::size_t>(options_.max_length);
  const bool had_loss = document.has_loss();
  const auto shorten = [&](auto* list) {
    if (list->size() <= most) return;
    if (options_.keeps_end) {
      list->erase(list->begin(), list->end() - static_cast<std::ptrdiff_t>(most));
    } else {
      list->resize(most);
    }
  };
  shorten(&document.ids);
  shorten(&document.in_loss);
  if (!had_loss || document.has_loss()) return document;
  return EncodedDocument{.left_out = EncodedDocument::OmitReason::kTooLong};
}

}  // namespace ds::tokenizer
