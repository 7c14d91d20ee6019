#include "runtime/tokenizer/chat/chat_template.h"

#include <string>

#include "runtime/base/utf8.h"

namespace ds::tokenizer {
namespace {

constexpr int kDeepestJson = 100;
constexpr std::size_t kLongestTemplate = std::size_t{1} << 20;

Status CheckDepth(const nlohmann::ordered_json& json, int left) {
  if (left == 0) return InvalidArgumentError("the messages are nested too deep");
  if (!json.is_structured()) return OkStatus();
  for (const auto& element : json) DS_RETURN_IF_ERROR(CheckDepth(element, left - 1));
  return OkStatus();
}

std::tm ClockTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local;
}

}  // namespace

StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  if (source.size() > kLongestTemplate) {
    return InvalidArgumentError("the chat template has more than a megabyte");
  }
  const std::size_t valid = ValidUtf8Prefix(source);
  if (valid < source.size()) {
    return InvalidArgumentError("the chat template is not UTF-8: byte " + std::to_string(valid) +
                                " begins no character");
  }
  DS_ASSIGN_OR_RETURN(StatementList block, ParseTemplate(source));
  return ChatTemplate(std::move(block));
}

StatusOr<RenderedChat> ChatTemplate::Render(const nlohmann::ordered_json& messages,
                                            const ChatOptions& options) const {
  DS_RETURN_IF_ERROR(CheckDepth(messages, kDeepestJson));
  DS_RETURN_IF_ERROR(CheckDepth(options.variables, kDeepestJson));
  const auto scope = std::make_shared<Scope>();
  // transformers passes these names to every template, with None for absent values.
  scope->Set("messages", Value::FromMessages(messages));
  scope->Set("tools", Value(Value::None{}));
  scope->Set("documents", Value(Value::None{}));
  scope->Set("add_generation_prompt", Value(options.add_generation_prompt));
  for (const auto& [name, value] : options.variables.items()) {
    scope->Set(name, Value::FromJson(value));
  }
  Renderer renderer(options.limits, options.now ? *options.now : ClockTime());
  DS_RETURN_IF_ERROR(renderer.Run(block_, std::make_shared<Scope>(Scope{scope, {}})));
  return RenderedChat{renderer.text(), renderer.generated(), renderer.turns()};
}

}  // namespace ds::tokenizer
