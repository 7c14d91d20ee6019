#include "runtime/tokenizer/chat/origin.h"

#include <optional>

#include "runtime/tokenizer/chat/value.h"

namespace ds::tokenizer {

Origin MergeOrigins(Origin a, Origin b) {
  if (a == kNoOrigin || a == b) return b;
  return b == kNoOrigin ? a : kManyOrigins;
}

namespace {

// Adds the names under which templates read the model's thinking, as transformers does for each of
// the three names in use. Returns nothing for a message without thinking.
std::optional<nlohmann::ordered_json> WithReasoning(const nlohmann::ordered_json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    nlohmann::ordered_json aliased;
    aliased["thinking"] = *found;
    aliased.update(message);
    aliased["reasoning_content"] = *found;
    return aliased;
  }
  return std::nullopt;
}

}  // namespace

Value Value::FromMessages(const nlohmann::ordered_json& messages) {
  if (!messages.is_array()) return FromJson(messages);
  ValueList list;
  for (const auto& message : messages) {
    if (!message.is_object()) {
      list.push_back(FromJson(message));
      continue;
    }
    const auto index = static_cast<Origin>(list.size());
    ValueDict dict;
    const auto renamed = WithReasoning(message);
    for (const auto& [key, value] : (renamed ? *renamed : message).items()) {
      // Gemma's format keeps tool results in the message that calls the tools.
      const Origin origin = key == "tool_responses" ? kManyOrigins : index;
      dict.entries.emplace_back(key, FromJson(value, key == "role" ? kNoOrigin : origin));
    }
    list.push_back(Value(std::move(dict), index));
  }
  return Value(std::move(list));
}

Value&& Value::WithOrigin(Origin origin) && {
  if (origin == kNoOrigin) return std::move(*this);
  if (text() != nullptr) origin_ = MergeOrigins(origin_, origin);
  if (list() == nullptr) return std::move(*this);
  ValueList marked = *list();
  for (Value& element : marked) {
    if (element.text() != nullptr) element.origin_ = MergeOrigins(element.origin_, origin);
  }
  *this = Value(std::move(marked));
  return std::move(*this);
}

Origin Value::message() const {
  const auto* dict = As<std::shared_ptr<const Shaped<ValueDict>>>();
  return dict == nullptr ? kNoOrigin : (*dict)->message;
}

}  // namespace ds::tokenizer
