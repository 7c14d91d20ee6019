// Feeds arbitrary bytes to ParseSentencePieceModel. A model that is accepted cuts a text into
// tokens that lie inside of it, and the same with and without offsets.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/tokenizer/file/sentencepiece_model.h"
#include "runtime/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kText = "Hello  world, h\u00e9 \u4f60\u597d \U0001F600 <sep>abcabc";
  auto parts =
      ds::tokenizer::ParseSentencePieceModel({reinterpret_cast<const char*>(data), size}, nullptr);
  if (!parts.ok()) {
    DS_CHECK(!parts.status().message().empty());
    return 0;
  }
  const ds::tokenizer::Tokenizer tokenizer(*std::move(parts));
  ds::tokenizer::Encoder encoder(tokenizer);
  const auto encoding = encoder.Encode(kText, {.offsets = true});
  const auto plain = encoder.Encode(kText);
  DS_CHECK(encoding.ok() == plain.ok());
  if (!encoding.ok()) return 0;
  DS_CHECK(encoding->ids == plain->ids);
  for (const auto& span : encoding->offsets) {
    DS_CHECK(span.begin <= span.end && span.end <= kText.size());
  }
  (void)tokenizer.Decode(encoding->ids).ok();
  return 0;
}
