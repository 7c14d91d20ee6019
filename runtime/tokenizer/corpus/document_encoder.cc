#include "runtime/tokenizer/corpus/document_encoder.h"

#include <algorithm>

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The text under a name; null when there is none.
const std::string* TextUnder(const OrderedJson& line, const std::string& name) {
  const auto found = line.find(name);
  return found == line.end() ? nullptr : found->get_ptr<const std::string*>();
}

bool IsAssistant(const OrderedJson& message) {
  return message.is_object() && message.value("role", OrderedJson()) == "assistant";
}

}  // namespace

StatusOr<EncodedDocument> DocumentEncoder::EncodeText(std::string_view text) {
  DS_ASSIGN_OR_RETURN(Encoding encoding, encoder_.Encode(text, {.truncate = false}));
  EncodedDocument document{std::move(encoding.ids), {}};
  End(&document);
  return document;
}

StatusOr<EncodedDocument> DocumentEncoder::EncodeLine(std::string_view line) {
  const OrderedJson json = OrderedJson::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgumentError("the line is no JSON object");
  const bool any = text_field_.empty();
  if (any && json.contains("messages")) return EncodeMessages(json);
  const std::string* prompt = TextUnder(json, "prompt");
  const std::string* completion = TextUnder(json, "completion");
  if (any && prompt != nullptr && completion != nullptr) {
    const std::string text = *prompt + *completion;
    const Span behind{static_cast<std::uint32_t>(prompt->size()),
                      static_cast<std::uint32_t>(text.size())};
    DS_ASSIGN_OR_RETURN(EncodedDocument document, EncodePartly(text, {behind}, true));
    End(&document);
    return document;
  }
  const std::string field = any ? "text" : text_field_;
  if (const std::string* text = TextUnder(json, field)) return EncodeText(*text);
  return InvalidArgumentError(
      "there is no text under \"" + field + "\"" +
      (any ? ", no \"messages\" and no \"prompt\" with a \"completion\"; name the field with "
             "--text_field"
           : ""));
}

StatusOr<EncodedDocument> DocumentEncoder::EncodeMessages(const OrderedJson& line) {
  if (!folder_.chat_template) {
    return FailedPreconditionError(
        "the line has messages, and the tokenizer's folder has no chat template");
  }
  const OrderedJson& messages = line["messages"];
  if (!messages.is_array()) return InvalidArgumentError("\"messages\" is no list");
  ChatOptions options{.variables = folder_.chat_variables};
  if (const auto tools = line.find("tools"); tools != line.end()) {
    options.variables["tools"] = *tools;
  }
  DS_ASSIGN_OR_RETURN(const RenderedChat chat, folder_.chat_template->Render(messages, options));
  DS_ASSIGN_OR_RETURN(const std::vector<Span> learnt, FindAssistant(messages, options, chat));
  // The template has written the special tokens.
  return EncodePartly(chat.text, learnt, false);
}

// What {% generation %} blocks have put out; of a template without them, what each of the
// assistant's messages adds to the conversation before it.
StatusOr<std::vector<Span>> DocumentEncoder::FindAssistant(const OrderedJson& messages,
                                                           const ChatOptions& options,
                                                           const RenderedChat& whole) {
  if (!whole.generated.empty()) return whole.generated;
  std::vector<Span> learnt;
  OrderedJson before = OrderedJson::array();
  for (const OrderedJson& message : messages) {
    if (IsAssistant(message)) {
      ChatOptions asked = options;
      asked.add_generation_prompt = true;
      DS_ASSIGN_OR_RETURN(const RenderedChat prompt, folder_.chat_template->Render(before, asked));
      before.push_back(message);
      DS_ASSIGN_OR_RETURN(const RenderedChat said, folder_.chat_template->Render(before, options));
      if (!said.text.starts_with(prompt.text) || !whole.text.starts_with(said.text)) {
        return UnimplementedError(
            "the chat template writes what has been said in another way when more is said, so that "
            "the assistant's words are not found; put {% generation %} and {% endgeneration %} "
            "around them in the template");
      }
      learnt.push_back({static_cast<std::uint32_t>(prompt.text.size()),
                        static_cast<std::uint32_t>(said.text.size())});
    } else {
      before.push_back(message);
    }
  }
  return learnt;
}

StatusOr<EncodedDocument> DocumentEncoder::EncodePartly(std::string_view text,
                                                        const std::vector<Span>& learnt,
                                                        bool special_tokens) {
  DS_ASSIGN_OR_RETURN(Encoding encoding, encoder_.Encode(text, {.special_tokens = special_tokens,
                                                                .offsets = true,
                                                                .truncate = false}));
  EncodedDocument document{std::move(encoding.ids), {}};
  bool is_learnt = false;
  for (const Span& span : encoding.offsets) {
    // What comes from nowhere, a special token at an end, goes with what is before it.
    if (span.begin != span.end) {
      is_learnt = std::any_of(learnt.begin(), learnt.end(), [&](const Span& each) {
        return span.begin >= each.begin && span.begin < each.end;
      });
    }
    document.learnt.push_back(is_learnt);
  }
  return document;
}

void DocumentEncoder::End(EncodedDocument* document) const {
  if (!folder_.end_of_text) return;
  if (!document->ids.empty() && document->ids.back() == *folder_.end_of_text) return;
  document->ids.push_back(*folder_.end_of_text);
  if (!document->learnt.empty()) document->learnt.push_back(true);
}

}  // namespace ds::tokenizer
