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

// Counts the bytes that both texts begin with, up to a whole word and never within a character: a
// blank that stands before the answers is of the answers, as in TRL's extract_prompt.
std::size_t CountShared(const std::string& a, const std::string& b) {
  auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  const auto is_inside = [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
  };
  while (end != a.begin() && end != a.end() && is_inside(*end)) --end;
  if (end != a.begin() && *std::prev(end) == ' ') --end;
  return static_cast<std::size_t>(end - a.begin());
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
  if (any && json.contains("messages")) return EncodeMessages(json["messages"], json);
  if (any && json.contains("chosen") && json.contains("rejected")) return EncodeChosen(json);
  const std::string* prompt = TextUnder(json, "prompt");
  const std::string* completion = TextUnder(json, "completion");
  if (any && prompt != nullptr && completion != nullptr) {
    return EncodeCompletion(*prompt, *completion);
  }
  const std::string field = any ? "text" : text_field_;
  if (const std::string* text = TextUnder(json, field)) return EncodeText(*text);
  return InvalidArgumentError(
      "there is no text under \"" + field + "\"" +
      (any ? ", no \"messages\", no \"prompt\" with a \"completion\" and no \"chosen\" with a "
             "\"rejected\"; name the field with --text_field"
           : ""));
}

StatusOr<EncodedDocument> DocumentEncoder::EncodeCompletion(const std::string& prompt,
                                                            const std::string& completion) {
  const std::string text = prompt + completion;
  const Span behind{static_cast<std::uint32_t>(prompt.size()),
                    static_cast<std::uint32_t>(text.size())};
  DS_ASSIGN_OR_RETURN(EncodedDocument document, EncodePartly(text, {behind}, true));
  End(&document);
  return document;
}

StatusOr<EncodedDocument> DocumentEncoder::EncodeChosen(const OrderedJson& line) {
  const OrderedJson &chosen = line["chosen"], &rejected = line["rejected"];
  const OrderedJson prompt = line.value("prompt", OrderedJson());
  const auto all = [&](auto is) {
    return is(chosen) && is(rejected) && (prompt.is_null() || is(prompt));
  };
  if (all([](const OrderedJson& each) { return each.is_string(); })) {
    const auto& text = chosen.get_ref<const std::string&>();
    if (prompt.is_string()) return EncodeCompletion(prompt.get<std::string>(), text);
    const std::size_t shared = CountShared(text, rejected.get_ref<const std::string&>());
    return EncodeCompletion(text.substr(0, shared), text.substr(shared));
  }
  if (!all([](const OrderedJson& each) { return each.is_array(); })) {
    return InvalidArgumentError(
        "\"chosen\", \"rejected\" and \"prompt\", if there is one, must all be texts, or all lists "
        "of messages");
  }
  OrderedJson messages = prompt.is_array() ? prompt : OrderedJson::array();
  messages.insert(messages.end(), chosen.begin(), chosen.end());
  const auto shared = std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end());
  const auto said =
      prompt.is_array() ? prompt.end() - prompt.begin() : shared.first - chosen.begin();
  const auto known = std::count_if(messages.begin(), messages.begin() + said, IsAssistant);
  return EncodeMessages(messages, line, static_cast<std::size_t>(known));
}

StatusOr<EncodedDocument> DocumentEncoder::EncodeMessages(const OrderedJson& messages,
                                                          const OrderedJson& line,
                                                          std::size_t known) {
  if (!folder_.chat_template) {
    return FailedPreconditionError(
        "the line has messages, and the tokenizer's folder has no chat template");
  }
  if (!messages.is_array()) return InvalidArgumentError("\"messages\" is no list");
  ChatOptions options{.variables = folder_.chat_variables};
  if (const auto tools = line.find("tools"); tools != line.end()) {
    options.variables["tools"] = *tools;
  }
  DS_ASSIGN_OR_RETURN(const RenderedChat chat, folder_.chat_template->Render(messages, options));
  DS_ASSIGN_OR_RETURN(std::vector<Span> learnt, FindAssistant(messages, options, chat));
  const std::size_t given = std::min(known, learnt.size());
  learnt.erase(learnt.begin(), learnt.begin() + static_cast<std::ptrdiff_t>(given));
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
