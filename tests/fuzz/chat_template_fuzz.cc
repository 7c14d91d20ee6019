// Feeds arbitrary bytes to ChatTemplate: what it accepts is rendered within its limits.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/tokenizer/chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = ds::tokenizer::ChatTemplate::Parse(source);
  if (!parsed.ok()) {
    DS_CHECK(!parsed.status().message().empty());
    return 0;
  }
  const auto messages = nlohmann::ordered_json::parse(
      R"([{"role": "system", "content": "be"}, {"role": "user", "content": "h\u00e9 \ud83d\ude00"},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]}])");
  ds::tokenizer::ChatOptions options{.add_generation_prompt = true};
  options.variables = {{"bos_token", "<s>"}, {"tools", nlohmann::ordered_json::array()}};
  options.limits = {.steps = 20000, .bytes = 1 << 20, .depth = 60};
  const auto rendered = parsed->Render(messages, options);
  if (!rendered.ok()) return 0;
  DS_CHECK(rendered->text.size() <= options.limits.bytes);
  for (const auto& span : rendered->generated) {
    DS_CHECK(span.begin <= span.end && span.end <= rendered->text.size());
  }
  std::uint32_t reached = 0;
  for (const auto& turn : rendered->turns) {
    DS_CHECK(turn.span.begin >= reached && turn.span.begin < turn.span.end);
    DS_CHECK(turn.message >= 0 && turn.message < 3);
    reached = turn.span.end;
  }
  DS_CHECK(reached <= rendered->text.size());
  return 0;
}
