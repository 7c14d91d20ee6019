#pragma once

// Tokenizer: text to token ids and back, as a Hugging Face folder defines it. Ids, offsets and
// decoded text are those of Hugging Face's `tokenizers`.
//
//     DS_ASSIGN_OR_RETURN(const Tokenizer tokenizer, ReadTokenizer("/models/llama"));
//     Encoder encoder(tokenizer);
//     DS_ASSIGN_OR_RETURN(const Encoding encoding, encoder.Encode("Hello"));
//     std::string text = *tokenizer.Decode(encoding.ids);
//
// Torch-free. Threads: a Tokenizer does not change, and any number of threads may use it; an
// Encoder remembers the words that it has cut and belongs to one thread. The Tokenizer outlives its
// Encoders.

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

struct TokenizerParts;
class WordCache;

struct EncodeOptions {
  bool special_tokens = true;  // with the ones that the post-processor puts around a text
  bool offsets = false;        // with where every token comes from, and its text
  bool truncate = true;        // to the length that the tokenizer's file sets, if it does
};

class Tokenizer {
 public:
  explicit Tokenizer(TokenizerParts parts);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The text of these ids. Ids that no token has are left out, as Hugging Face's library does.
  StatusOr<std::string> Decode(std::span<const std::uint32_t> ids,
                               bool skip_special_tokens = false) const;

  std::optional<std::uint32_t> IdOf(std::string_view token) const;
  // The token of an id; nothing when there is none.
  std::optional<std::string> TokenOf(std::uint32_t id) const;
  bool IsSpecial(std::uint32_t id) const;
  // Every id is below.
  std::size_t id_limit() const;

  const TokenizerParts& parts() const { return *parts_; }

 private:
  std::unique_ptr<const TokenizerParts> parts_;
};

class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);
  ~Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // The tokens of a text of less than 4 GiB. Refuses what is no UTF-8, and says at which byte.
  StatusOr<Encoding> Encode(std::string_view text, const EncodeOptions& options = {});
  StatusOr<Encoding> EncodePair(std::string_view first, std::string_view second,
                                const EncodeOptions& options = {});

 private:
  StatusOr<Encoding> EncodeOne(std::string_view text, const EncodeOptions& options);
  StatusOr<Encoding> EncodeAll(std::span<const std::string_view> texts,
                               const EncodeOptions& options);

  const TokenizerParts& parts_;
  std::unique_ptr<WordCache> cache_;
};

}  // namespace ds::tokenizer
