#pragma once

// Tokenizer converts text to token ids and back, as a Hugging Face folder defines it. Ids, offsets
// and decoded text equal Hugging Face's `tokenizers`.
//
//     DS_ASSIGN_OR_RETURN(const Tokenizer tokenizer, ReadTokenizer("/models/llama"));
//     Encoder encoder(tokenizer);
//     DS_ASSIGN_OR_RETURN(const Encoding encoding, encoder.Encode("Hello"));
//     std::string text = *tokenizer.Decode(encoding.ids);
//
// Torch-free. A Tokenizer is immutable and thread-safe. An Encoder caches words and belongs to one
// thread. The Tokenizer must outlive its Encoders.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/tokenizer/post_processors/encoding.h"

namespace ds::tokenizer {

struct TokenizationPipeline;
class WordCache;

struct EncodeOptions {
  bool special_tokens = true;  // adds the post-processor's special tokens around a text
  bool offsets = false;        // fills in the source range and the text of every token
  bool truncate = true;        // to the maximum length in the tokenizer's file, if any
};

class Tokenizer {
 public:
  explicit Tokenizer(TokenizationPipeline pipeline);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Returns the text of these ids. Ids without a token are ignored, as in Hugging Face's library.
  StatusOr<std::string> Decode(std::span<const std::uint32_t> ids,
                               bool skip_special_tokens = false) const;

  std::optional<std::uint32_t> IdOf(std::string_view token) const;
  // Returns the token of an id; nothing when there is none.
  std::optional<std::string> TokenOf(std::uint32_t id) const;
  bool IsSpecial(std::uint32_t id) const;
  // Returns a bound that all ids are below.
  std::size_t id_limit() const;

  const TokenizationPipeline& pipeline() const { return *pipeline_; }

 private:
  std::unique_ptr<const TokenizationPipeline> pipeline_;
};

class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);
  ~Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // Returns the tokens of a text of less than 4 GiB. Rejects invalid UTF-8, with the position of
  // the byte.
  StatusOr<Encoding> Encode(std::string_view text, const EncodeOptions& options = {});
  StatusOr<Encoding> EncodePair(std::string_view first, std::string_view second,
                                const EncodeOptions& options = {});

 private:
  StatusOr<Encoding> EncodeOne(std::string_view text, const EncodeOptions& options);
  StatusOr<Encoding> EncodeAll(std::span<const std::string_view> texts,
                               const EncodeOptions& options);

  const TokenizationPipeline& pipeline_;
  std::unique_ptr<WordCache> cache_;
};

}  // namespace ds::tokenizer
