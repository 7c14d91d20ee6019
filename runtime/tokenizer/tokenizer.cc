#include "runtime/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>

#include "runtime/base/utf8.h"
#include "runtime/tokenizer/tokenization_pipeline.h"

namespace ds::tokenizer {
namespace {

constexpr std::size_t kLongestText = 0xFFFFFFFF;  // positions have 32 bits

// With a model that reads bytes, the step that replaces them by letters is skipped.
void MapLettersToBytes(TokenizationPipeline* pipeline) {
  auto& steps = pipeline->pre_tokenizer;
  const bool letters_last = !steps.empty() && steps.back()->PutsLetters();
  if (letters_last && pipeline->model->ReadBytes()) steps.pop_back();
}

Status CheckText(std::string_view text) {
  if (text.size() >= kLongestText) {
    return InvalidArgumentError("a text of 4 GiB or more cannot be tokenized as one");
  }
  const std::size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return OkStatus();
  return InvalidArgumentError("byte " + std::to_string(valid) + " of the text is not UTF-8");
}

// Returns a token's position in the user's text. A token without text of the word keeps its own.
Span OriginOf(const AlignedText& text, const Word& word, const Token& token) {
  if (token.begin >= token.end || word.begin + token.end > word.end) {
    return {token.begin, token.end};
  }
  return text.Origin(word.begin + token.begin, word.begin + token.end);
}

}  // namespace

Tokenizer::Tokenizer(TokenizationPipeline pipeline) {
  MapLettersToBytes(&pipeline);
  pipeline_ = std::make_unique<const TokenizationPipeline>(std::move(pipeline));
}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::optional<std::uint32_t> Tokenizer::IdOf(std::string_view token) const {
  const auto added = pipeline_->added.Find(token);
  return added ? added : pipeline_->model->vocabulary().Find(token);
}

std::optional<std::string> Tokenizer::TokenOf(std::uint32_t id) const {
  if (const AddedToken* added = pipeline_->added.TokenOf(id)) return added->content;
  const std::string* token = pipeline_->model->vocabulary().TokenOf(id);
  if (token == nullptr) return std::nullopt;
  return *token;
}

bool Tokenizer::IsSpecial(std::uint32_t id) const {
  const auto token = TokenOf(id);
  return token && pipeline_->added.IsSpecial(*token);
}

std::size_t Tokenizer::id_limit() const {
  return std::max(pipeline_->added.id_limit(), pipeline_->model->vocabulary().id_limit());
}

StatusOr<std::string> Tokenizer::Decode(std::span<const std::uint32_t> ids,
                                        bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  for (const std::uint32_t id : ids) {
    std::optional<std::string> token = TokenOf(id);
    if (!token) continue;
    if (pipeline_->added.TokenOf(id) != nullptr) token = pipeline_->added.DecodedText(id);
    if (skip_special_tokens && pipeline_->added.IsSpecial(*token)) continue;
    tokens.push_back(*std::move(token));
  }
  if (pipeline_->decoder) {
    for (const auto& step : *pipeline_->decoder) DS_RETURN_IF_ERROR(step->Apply(&tokens));
  }
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !pipeline_->decoder) text += ' ';
    text += tokens[i];
  }
  return text;
}

Encoder::Encoder(const Tokenizer& tokenizer)
    : pipeline_(tokenizer.pipeline()), cache_(std::make_unique<WordCache>()) {}
Encoder::~Encoder() = default;

StatusOr<Encoding> Encoder::EncodeOne(std::string_view text, const EncodeOptions& options) {
  DS_RETURN_IF_ERROR(CheckText(text));
  const bool aligned =
      options.offsets || std::any_of(pipeline_.pre_tokenizer.begin(), pipeline_.pre_tokenizer.end(),
                                     [](const auto& step) { return step->NeedsOrigins(); });
  PreTokenizedText words;
  DS_RETURN_IF_ERROR(
      pipeline_.added.Extract(AlignedText(text, aligned), pipeline_.normalizer.get(), &words));
  for (const auto& step : pipeline_.pre_tokenizer) DS_RETURN_IF_ERROR(step->Apply(&words));
  Encoding encoding;
  encoding.ids.reserve(text.size() / 3);
  std::vector<Token> tokens;
  for (const Word& word : words.list()) {
    const std::string_view characters = words.TextOf(word);
    const bool is_added = word.token != kNoToken;
    tokens.clear();
    if (is_added) {
      tokens.push_back({word.token, 0, static_cast<std::uint32_t>(characters.size())});
    } else {
      DS_RETURN_IF_ERROR(pipeline_.model->Tokenize(characters, cache_.get(), &tokens));
    }
    for (const Token& token : tokens) {
      encoding.ids.push_back(token.id);
      if (!options.offsets) continue;
      encoding.offsets.push_back(OriginOf(words.text(), word, token));
      encoding.tokens.push_back(is_added ? std::string(characters)
                                         : pipeline_.model->TextOf(token, characters));
    }
  }
  return encoding;
}

StatusOr<Encoding> Encoder::EncodeAll(std::span<const std::string_view> texts,
                                      const EncodeOptions& options) {
  std::vector<Encoding> parts;
  for (const std::string_view text : texts) {
    DS_ASSIGN_OR_RETURN(Encoding encoding, EncodeOne(text, options));
    parts.push_back(std::move(encoding));
  }
  const PostProcessor& processor = pipeline_.post_processor;
  if (options.truncate && pipeline_.truncation) {
    const std::size_t added = options.special_tokens ? processor.CountAdded(parts.size() == 2) : 0;
    DS_RETURN_IF_ERROR(Truncate(*pipeline_.truncation, added, &parts));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) processor.TrimOffsets(texts[i], &parts[i]);
  return processor.Apply(std::move(parts), options.special_tokens, options.offsets);
}

StatusOr<Encoding> Encoder::Encode(std::string_view text, const EncodeOptions& options) {
  return EncodeAll({&text, 1}, options);
}

StatusOr<Encoding> Encoder::EncodePair(std::string_view first, std::string_view second,
                                       const EncodeOptions& options) {
  return EncodeAll(std::array{first, second}, options);
}

}  // namespace ds::tokenizer
