#include "runtime/tokenizer/corpus/written_chat.h"

#include <map>
#include <string>
#include <utility>

#include "runtime/tokenizer/chat/value.h"

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

// A word that no template contains.
constexpr const char* kPartProbe = "qzkdsvx";

bool HasParts(const OrderedJson& message) {
  return message.is_object() && message.value("content", OrderedJson()).is_array();
}

// Builds a short conversation with one message of the role; the probe is its only part.
OrderedJson ProbeOf(const std::string& role) {
  const OrderedJson part{{"type", "text"}, {"text", kPartProbe}};
  const OrderedJson probe{{"role", role}, {"content", OrderedJson::array({part})}};
  const OrderedJson user{{"role", "user"}, {"content", "x"}};
  if (role == "user") return OrderedJson::array({probe});
  if (role == "assistant") return OrderedJson::array({user, probe});
  if (role != "tool") return OrderedJson::array({probe, user});
  const OrderedJson function{{"name", "f"}, {"arguments", OrderedJson::object()}};
  const OrderedJson call{{"type", "function"}, {"function", function}};
  const OrderedJson calls{
      {"role", "assistant"}, {"content", ""}, {"tool_calls", OrderedJson::array({call})}};
  return OrderedJson::array({user, calls, probe});
}

// A template that does not read parts fails on the list, drops it, or writes it as a list.
bool ReadsParts(const ChatTemplate& chat_template, const ChatOptions& options,
                const std::string& role) {
  const auto chat = chat_template.Render(ProbeOf(role), options);
  if (!chat.ok()) return false;
  const std::size_t at = chat->text.find(kPartProbe);
  if (at == std::string::npos) return false;
  // In a list, the probe is in quotes.
  return at == 0 || (chat->text[at - 1] != '\'' && chat->text[at - 1] != '"');
}

OrderedJson JoinParts(const OrderedJson& parts) {
  std::string text;
  bool is_first = true;
  for (const OrderedJson& part : parts) {
    text += (std::exchange(is_first, false) ? "" : "\n") + part.value("text", std::string());
  }
  return text;
}

// Some templates read the content of some roles only as a text.
OrderedJson FitContent(OrderedJson messages, const ChatTemplate& chat_template,
                       const ChatOptions& options) {
  std::map<std::string, bool> reads;
  for (OrderedJson& message : messages) {
    if (!HasParts(message)) continue;
    const std::string role = message.value("role", std::string());
    const auto [known, is_new] = reads.try_emplace(role, false);
    if (is_new) known->second = ReadsParts(chat_template, options, role);
    if (!known->second) message["content"] = JoinParts(message["content"]);
  }
  return messages;
}

// Converts the arguments of calls to JSON text, the only form that some templates can write.
OrderedJson WithTextArguments(OrderedJson messages) {
  for (OrderedJson& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (OrderedJson& call : *calls) {
      const auto function = call.find("function");
      if (function == call.end() || !function->contains("arguments")) continue;
      OrderedJson& arguments = (*function)["arguments"];
      if (arguments.is_object()) arguments = ToJson(Value::FromJson(arguments), {});
    }
  }
  return messages;
}

}  // namespace

StatusOr<WrittenChat> WriteChat(const ChatRow& chat, const TokenizerFolder& folder,
                                bool add_generation_prompt) {
  if (!folder.chat_template) {
    return FailedPreconditionError(
        "a conversation needs a chat template, and the tokenizer's folder has none (neither "
        "chat_template.jinja nor \"chat_template\" in tokenizer_config.json)");
  }
  WrittenChat written;
  written.options = {.add_generation_prompt = add_generation_prompt,
                     .variables = folder.chat_variables};
  written.options.variables.update(chat.variables);
  written.messages = FitContent(chat.messages, *folder.chat_template, written.options);
  auto full = folder.chat_template->Render(written.messages, written.options);
  if (!full.ok()) {
    OrderedJson messages = WithTextArguments(written.messages);
    if (messages == written.messages) return full.status();
    auto again = folder.chat_template->Render(messages, written.options);
    if (!again.ok()) return full.status();
    written.messages = std::move(messages);
    full = std::move(again);
  }
  written.full = *std::move(full);
  return written;
}

}  // namespace ds::tokenizer
