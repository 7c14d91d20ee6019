#include "runtime/tokenizer/corpus/assistant_spans.h"

#include <algorithm>
#include <map>
#include <optional>

#include "runtime/tokenizer/tokenization_pipeline.h"

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The possible texts before the words of an answer, the longer one first.
struct Headers {
  std::vector<std::string> texts;
  bool required = true;  // one of the texts is always present
};

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::size_t kLongestSpecial = 64;
// A character of Unicode's private use area, which templates do not use.
constexpr char kProbe[] = "\xEE\x80\x80";
// Prefix of the call names in the rendering that tests which calls are rendered.
constexpr char kCallProbe[] = "qzkdsvx";

// The way a template renders an answer: the text before its words, and whether a special token
// follows the words. Blanks are not a header.
struct Answer {
  std::string header;
  bool has_end = true;
};

// Returns the text under a name, empty when there is none.
std::string TextUnderName(const OrderedJson& values, const char* name) {
  const auto found = values.find(name);
  return found != values.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string_view TrimLeft(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
}

std::string_view TrimRight(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Ends a generation prompt before the mark that opens the model's thinking: "<think>", "[THINK]",
// "<|channel>thought". In TRL's training templates that mark contributes to the loss.
std::string_view RemoveThinking(std::string_view prompt) {
  std::string lower(prompt);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const std::size_t word = std::min(lower.find("think"), lower.find("thought"));
  if (word == std::string::npos) return prompt;
  std::size_t mark = word;
  for (const std::string_view open : {"<", "[", "\u25C1"}) {
    const std::size_t at = lower.rfind(open, word);
    if (at != std::string::npos && (mark == word || at > mark)) mark = at;
  }
  return prompt.substr(0, mark);
}

// Returns the text that `asked` adds to `plain`, between their common beginning and end.
std::string_view Added(std::string_view asked, std::string_view plain) {
  const auto shared = std::mismatch(asked.begin(), asked.end(), plain.begin(), plain.end());
  auto begin = static_cast<std::size_t>(shared.first - asked.begin());
  // Two marks may have a common beginning: "<|assistant|>" and "<|end|>".
  const std::size_t open = asked.substr(0, begin).find_last_of("<[");
  const bool is_open = open != std::string_view::npos &&
                       asked.substr(open, begin - open).find_first_of(">]") == std::string::npos;
  if (is_open) begin = open;
  std::string_view added = asked.substr(begin);
  plain.remove_prefix(std::min(begin, plain.size()));
  while (!added.empty() && !plain.empty() && added.back() == plain.back()) {
    added.remove_suffix(1);
    plain.remove_suffix(1);
  }
  return added;
}

bool IsAssistant(const OrderedJson& message) {
  return message.is_object() && message.value("role", OrderedJson()) == "assistant";
}

OrderedJson Message(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

// Returns the beginning of a text, for an error.
std::string Quoted(std::string_view text) {
  std::size_t end = std::min<std::size_t>(text.size(), 40);
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return OrderedJson(text.substr(0, end)).dump();
}

class AssistantFinder {
 public:
  AssistantFinder(const TokenizerFolder& folder, const OrderedJson& messages,
                  const ChatOptions& options, const RenderedChat& full)
      : folder_(folder), messages_(messages), options_(options), full_(full) {}

  StatusOr<std::vector<AssistantSpan>> Find() {
    std::vector<AssistantSpan> found;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (!IsAssistant(messages_[i])) continue;
      DS_ASSIGN_OR_RETURN(std::vector<Span> parts, PartsOf(i));
      DS_ASSIGN_OR_RETURN(parts.front().begin, FindBegin(i, parts.front()));
      parts.back().end = FindEnd(parts.back());
      for (const Span& part : parts) {
        if (part.begin < part.end) found.push_back({i, part});
      }
    }
    // A part of a later message may be inside an earlier one.
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.span.begin < b.span.begin; });
    return found;
  }

 private:
  Status Trouble(std::size_t message, const std::string& what) const {
    return UnimplementedError(
        "message " + std::to_string(message + 1) + ", the assistant's: the chat template " + what +
        ", so dsrun cannot locate the words to train on; put {% generation %} and {% endgeneration "
        "%} around the assistant's words in the template");
  }

  // Only parts of later messages may occur between two parts of a message.
  StatusOr<std::vector<Span>> PartsOf(std::size_t message) const {
    const auto index = static_cast<Origin>(message);
    std::vector<Span> parts;
    std::uint32_t reached = 0;
    for (const ChatTurn& turn : full_.turns) {
      const bool follows = turn.span.begin == reached;
      if (turn.message != index) {
        if (follows && turn.message > index) reached = turn.span.end;
        continue;
      }
      if (!parts.empty() && !follows) return Trouble(message, "writes it in two places");
      if (turn.origin != kNoOrigin && turn.origin != index) {
        return Trouble(message, "writes words of other messages in its span");
      }
      parts.push_back(turn.span);
      reached = turn.span.end;
    }
    if (parts.empty()) {
      return Trouble(message, "writes nothing of it in a loop over the messages");
    }
    return parts;
  }

  StatusOr<std::uint32_t> FindBegin(std::size_t message, const Span& part) {
    const std::string role = message == 0 ? "" : TextUnderName(messages_[message - 1], "role");
    for (const bool again : {false, true}) {
      if (again || !headers_.contains(role)) {
        DS_ASSIGN_OR_RETURN(headers_[role], HeadersBefore(message));
      }
      if (const auto begin = SkipHeader(headers_[role], part)) return *begin;
    }
    // DeepSeek-V3's template writes no header before calls after the first one.
    const std::string& header = headers_[role].texts.front();
    if (PlainAnswer().header == header && Words(part).find(header) == std::string_view::npos) {
      return part.begin;
    }
    return Trouble(message, "begins it with " + Quoted(Words(part)) +
                                " and a generation prompt with " + Quoted(header));
  }

  // Returns the header of an answer to the preceding messages: the text after their last turn in a
  // rendering with a generation prompt, or the text that the prompt adds. A template may require a
  // question.
  StatusOr<Headers> HeadersBefore(std::size_t message) {
    OrderedJson before(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(message));
    ChatOptions asking = options_;
    asking.add_generation_prompt = true;
    auto rendered = folder_.chat_template->Render(before, asking);
    if (before.empty() || !rendered.ok()) {
      before = OrderedJson::array({Message("user", "?")});
      rendered = folder_.chat_template->Render(before, asking);
    }
    DS_ASSIGN_OR_RETURN(const RenderedChat asked, std::move(rendered));
    DS_ASSIGN_OR_RETURN(const RenderedChat plain, folder_.chat_template->Render(before, options_));
    const std::size_t after = asked.turns.empty() ? asked.text.size() : asked.turns.back().span.end;
    std::string added(TrimLeft(RemoveThinking(Added(asked.text, plain.text))));
    std::string last(TrimLeft(RemoveThinking(std::string_view(asked.text).substr(after))));
    if (last.size() > added.size()) std::swap(added, last);
    if (added.empty()) return Headers{{PlainAnswer().header}, false};
    return Headers{last.empty() ? std::vector{added} : std::vector{added, last}};
  }

  // Renders a plain answer between two questions.
  const Answer& PlainAnswer() {
    if (plain_) return *plain_;
    plain_ = Answer{};
    const OrderedJson probe = OrderedJson::array(
        {Message("user", "?"), Message("assistant", kProbe), Message("user", "?")});
    const auto chat = folder_.chat_template->Render(probe, options_);
    if (!chat.ok()) return *plain_;
    for (const ChatTurn& turn : chat->turns) {
      const std::string_view text =
          std::string_view(chat->text).substr(turn.span.begin, turn.span.end - turn.span.begin);
      const std::size_t words = text.find(kProbe);
      if (turn.message != 1 || words == std::string_view::npos) continue;
      plain_->header = TrimLeft(RemoveThinking(text.substr(0, words)));
      plain_->has_end = EndsWithSpecial(TrimRight(text.substr(words)));
    }
    return *plain_;
  }

  // Returns the end of the header that the part begins with, or that is right before it; nothing
  // for an unknown header.
  std::optional<std::uint32_t> SkipHeader(const Headers& headers, const Span& part) const {
    const std::string_view text = std::string_view(full_.text).substr(0, part.end);
    std::string_view rest = TrimLeft(text.substr(part.begin));
    const std::string begin_of_text = TextUnderName(options_.variables, "bos_token");
    if (!begin_of_text.empty() && rest.starts_with(begin_of_text)) {
      rest.remove_prefix(begin_of_text.size());
    }
    const auto location = [&](std::size_t skipped) {
      return static_cast<std::uint32_t>(text.size() - rest.size() + skipped);
    };
    for (const std::string& header : headers.texts) {
      const std::string_view words = TrimRight(header);
      if (header.empty()) continue;
      if (rest.starts_with(header)) return location(header.size());
      if (text.substr(0, part.begin).ends_with(header)) return part.begin;
      if (rest.starts_with(words)) return location(words.size());
    }
    return headers.required ? std::nullopt : std::optional(part.begin);
  }

  std::uint32_t FindEnd(const Span& part) {
    const std::string_view text = full_.text;
    const std::string_view after = text.substr(part.end);
    if (part.end == full_.turns.back().span.end) {
      const std::string end_of_text = TextUnderName(options_.variables, "eos_token");
      const std::string_view rest = TrimLeft(after);
      if (!end_of_text.empty() && rest.starts_with(end_of_text)) {
        return static_cast<std::uint32_t>(text.size() - rest.size() + end_of_text.size());
      }
    }
    const std::string_view said = Words(part);
    if (!EndsWithSpecial(TrimRight(said)) && !PlainAnswer().has_end) {
      return static_cast<std::uint32_t>(part.end + SpecialAt(after));
    }
    return static_cast<std::uint32_t>(part.begin + said.find_last_not_of(' ') + 1);
  }

  std::string_view Words(const Span& part) const {
    return std::string_view(full_.text).substr(part.begin, part.end - part.begin);
  }

  bool EndsWithSpecial(std::string_view text) const {
    for (std::size_t size = std::min(kLongestSpecial, text.size()); size > 0; --size) {
      if (added().IsSpecial(text.substr(text.size() - size))) return true;
    }
    return false;
  }

  // Returns the size of the special token at the beginning of a text; 0 for none, and for a
  // bos_token.
  std::size_t SpecialAt(std::string_view text) const {
    for (std::size_t size = std::min(kLongestSpecial, text.size()); size > 0; --size) {
      const std::string_view token = text.substr(0, size);
      if (!added().IsSpecial(token)) continue;
      return TextUnderName(options_.variables, "bos_token") == token ? 0 : size;
    }
    return 0;
  }

  const AddedTokens& added() const { return folder_.tokenizer.pipeline().added; }

  const TokenizerFolder& folder_;
  const OrderedJson& messages_;
  const ChatOptions& options_;
  const RenderedChat& full_;
  std::map<std::string, Headers> headers_;  // by the role of the preceding message
  std::optional<Answer> plain_;
};

bool HasWords(const OrderedJson& content) {
  if (content.is_string()) return !TrimLeft(content.get_ref<const std::string&>()).empty();
  return content.is_array() && std::any_of(content.begin(), content.end(), [](const auto& part) {
           return !TrimLeft(TextUnderName(part, "text")).empty();
         });
}

Status NotWritten(std::size_t message, const std::string& what, const std::string& remedy) {
  return InvalidArgumentError("message " + std::to_string(message + 1) +
                              ", the assistant's: the chat template does not write " + what + "; " +
                              remedy);
}

// The text of a message's turns, and its origin.
struct TurnText {
  std::string text;
  Origin origin = kNoOrigin;
};

TurnText TurnTextOf(std::size_t message, const RenderedChat& chat) {
  TurnText all;
  for (const ChatTurn& turn : chat.turns) {
    if (turn.message != static_cast<Origin>(message)) continue;
    all.text +=
        std::string_view(chat.text).substr(turn.span.begin, turn.span.end - turn.span.begin);
    all.origin = MergeOrigins(all.origin, turn.origin);
  }
  return all;
}

struct Call {
  std::size_t message;
  std::string name, probe;
};

// Gives each call of the assistant's messages a name that occurs nowhere else.
std::vector<Call> RenameCalls(OrderedJson* messages) {
  std::vector<Call> calls;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    OrderedJson& message = (*messages)[i];
    if (!IsAssistant(message) || !message.value("tool_calls", OrderedJson()).is_array()) continue;
    for (OrderedJson& call : message["tool_calls"]) {
      OrderedJson& function = call.contains("function") ? call["function"] : call;
      if (!function.contains("name")) continue;
      const std::string probe = kCallProbe + std::to_string(calls.size()) + "x";
      calls.push_back({i, TextUnderName(function, "name"), probe});
      function["name"] = probe;
    }
  }
  return calls;
}

// Renders the messages again with other names for the calls, since a tool's own name may also occur
// in the answer's words. If the template rejects these names, checks for the tool's own name.
Status CheckCalls(const TokenizerFolder& folder, OrderedJson messages, const ChatOptions& options,
                  const RenderedChat& full) {
  const std::vector<Call> calls = RenameCalls(&messages);
  if (calls.empty()) return OkStatus();
  const auto renamed = folder.chat_template->Render(messages, options);
  for (const Call& call : calls) {
    if (TurnTextOf(call.message, full).text.empty()) continue;
    const std::string text = TurnTextOf(call.message, renamed.ok() ? *renamed : full).text;
    if (text.find(renamed.ok() ? call.probe : call.name) != std::string::npos) continue;
    return NotWritten(call.message, "its call of the tool " + call.name,
                      "take a template with calls of tools, or rows without them");
  }
  return OkStatus();
}

// Some templates ignore content that is not a list of parts.
Status CheckWords(const OrderedJson& message, std::size_t index, const RenderedChat& full) {
  const TurnText turn = TurnTextOf(index, full);
  const bool is_written = turn.text.empty() || turn.origin != kNoOrigin;
  if (is_written || !HasWords(message.value("content", OrderedJson()))) return OkStatus();
  return NotWritten(index, "its words",
                    "some templates read content as a list of {\"type\": \"text\"} parts only");
}

// Returns the spans of {% generation %} blocks. Blocks outside the loops over the messages are
// assigned to the assistant's messages in order.
std::vector<AssistantSpan> GeneratedSpans(const OrderedJson& messages, const RenderedChat& full) {
  if (messages.empty()) return {};
  std::vector<std::size_t> assistant;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (IsAssistant(messages[i])) assistant.push_back(i);
  }
  std::vector<AssistantSpan> spans;
  for (std::size_t i = 0; i < full.generated.size(); ++i) {
    const Span& span = full.generated[i];
    const auto turn = std::find_if(full.turns.begin(), full.turns.end(), [&](const ChatTurn& each) {
      return span.begin >= each.span.begin && span.begin < each.span.end;
    });
    const std::size_t by_order =
        assistant.empty() ? 0 : assistant[std::min(i, assistant.size() - 1)];
    spans.push_back(
        {turn == full.turns.end() ? by_order : static_cast<std::size_t>(turn->message), span});
  }
  return spans;
}

}  // namespace

StatusOr<std::vector<AssistantSpan>> FindAssistant(const TokenizerFolder& folder,
                                                   const OrderedJson& messages,
                                                   const ChatOptions& options,
                                                   const RenderedChat& full) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (IsAssistant(messages[i])) DS_RETURN_IF_ERROR(CheckWords(messages[i], i, full));
  }
  DS_RETURN_IF_ERROR(CheckCalls(folder, messages, options, full));
  if (!full.generated.empty()) return GeneratedSpans(messages, full);
  return AssistantFinder(folder, messages, options, full).Find();
}

}  // namespace ds::tokenizer
