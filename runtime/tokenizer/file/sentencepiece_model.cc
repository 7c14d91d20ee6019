#include "runtime/tokenizer/file/sentencepiece_model.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/base/utf8.h"
#include "runtime/tokenizer/file/wire_message.h"
#include "runtime/tokenizer/models/bpe.h"
#include "runtime/tokenizer/models/unigram.h"
#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

// sentencepiece_model.proto: ModelProto.SentencePiece.Type and TrainerSpec.ModelType.
enum PieceType : std::uint64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
enum ModelType : std::uint64_t { kUnigramModel = 1, kBpeModel = 2 };

struct SentencePiece {
  std::string text;
  float score = 0;
  std::uint64_t type = kNormal;
};

struct SentencePieceFile {
  std::vector<SentencePiece> list;
  std::uint64_t model_type = kUnigramModel;
  bool byte_fallback = false;
  std::int64_t bos_id = 1, eos_id = 2;
  BlankRules rules;
  std::string charsmap;
};

StatusOr<SentencePiece> ReadSentencePiece(std::string_view bytes) {
  SentencePiece read;
  for (WireMessage message(bytes);;) {
    DS_ASSIGN_OR_RETURN(const auto field, message.Next());
    if (!field) break;
    if (field->number == 1) read.text = field->bytes;
    if (field->number == 2) {
      read.score = std::bit_cast<float>(static_cast<std::uint32_t>(field->varint));
    }
    if (field->number == 3) read.type = field->varint;
  }
  if (read.text.empty() || ValidUtf8Prefix(read.text) != read.text.size()) {
    return InvalidArgumentError("a piece is empty or no UTF-8");
  }
  return read;
}

Status ReadTrainerSpec(std::string_view bytes, SentencePieceFile* file) {
  for (WireMessage message(bytes);;) {
    DS_ASSIGN_OR_RETURN(const auto field, message.Next());
    if (!field) return OkStatus();
    if (field->number == 3) file->model_type = field->varint;
    if (field->number == 24) file->rules.blanks_as_suffix = field->varint != 0;
    if (field->number == 35) file->byte_fallback = field->varint != 0;
    if (field->number == 41) file->bos_id = static_cast<std::int32_t>(field->varint);
    if (field->number == 42) file->eos_id = static_cast<std::int32_t>(field->varint);
  }
}

Status ReadNormalizerSpec(std::string_view bytes, SentencePieceFile* file) {
  for (WireMessage message(bytes);;) {
    DS_ASSIGN_OR_RETURN(const auto field, message.Next());
    if (!field) return OkStatus();
    if (field->number == 2) file->charsmap = field->bytes;
    if (field->number == 3) file->rules.add_dummy_prefix = field->varint != 0;
    if (field->number == 4) file->rules.remove_extra_blanks = field->varint != 0;
    if (field->number == 5) file->rules.escape_blanks = field->varint != 0;
  }
}

StatusOr<SentencePieceFile> ParseSentencePieceFile(std::string_view bytes) {
  SentencePieceFile file;
  for (WireMessage message(bytes);;) {
    DS_ASSIGN_OR_RETURN(const auto field, message.Next());
    if (!field) break;
    if (field->number == 1) {
      DS_ASSIGN_OR_RETURN(SentencePiece read, ReadSentencePiece(field->bytes));
      file.list.push_back(std::move(read));
    }
    if (field->number == 2) DS_RETURN_IF_ERROR(ReadTrainerSpec(field->bytes, &file));
    if (field->number == 3) DS_RETURN_IF_ERROR(ReadNormalizerSpec(field->bytes, &file));
  }
  if (file.list.empty()) return InvalidArgumentError("it holds no pieces");
  return file;
}

StatusOr<Vocabulary> VocabularyOf(const SentencePieceFile& file) {
  Vocabulary vocabulary;
  for (std::size_t id = 0; id < file.list.size(); ++id) {
    DS_RETURN_IF_ERROR(
        vocabulary.Add(file.list[id].text, static_cast<std::uint32_t>(id), file.list.size()));
  }
  return vocabulary;
}

// Two neighbours merge if they form a piece, the piece with the best score first. Every split of a
// piece into two pieces is thus a merge, ranked by the piece's score.
StatusOr<std::unique_ptr<Model>> MakeBpe(const SentencePieceFile& file) {
  DS_ASSIGN_OR_RETURN(Vocabulary vocabulary, VocabularyOf(file));
  std::vector<std::size_t> order;
  BpeSettings settings{.fuse_unk = true, .byte_fallback = file.byte_fallback};
  for (std::size_t id = 0; id < file.list.size(); ++id) {
    if (file.list[id].type == kUnused) {
      return UnimplementedError("a BPE model with unused pieces is not supported");
    }
    if (file.list[id].type == kUnknown) settings.unk_token = file.list[id].text;
    if (file.list[id].type == kNormal) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return file.list[a].score > file.list[b].score;
  });
  const auto is_normal = [&](std::string_view text) {
    const auto id = vocabulary.Find(text);
    return id && file.list[*id].type == kNormal;
  };
  Bpe::Merges merges;
  std::vector<std::uint32_t> ranks;
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const SentencePiece& merged = file.list[order[i]];
    if (i > 0 && merged.score != file.list[order[i - 1]].score) ++rank;
    for (std::size_t boundary = 1; boundary < merged.text.size(); ++boundary) {
      if ((static_cast<unsigned char>(merged.text[boundary]) & 0xC0) == 0x80) continue;
      std::string left = merged.text.substr(0, boundary);
      std::string right = merged.text.substr(boundary);
      if (!is_normal(left) || !is_normal(right)) continue;
      merges.emplace_back(std::move(left), std::move(right));
      ranks.push_back(rank);
    }
  }
  DS_ASSIGN_OR_RETURN(auto bpe, Bpe::Create(std::move(vocabulary), merges, settings, ranks));
  return std::unique_ptr<Model>(std::move(bpe));
}

StatusOr<std::unique_ptr<Model>> MakeUnigram(const SentencePieceFile& file) {
  DS_ASSIGN_OR_RETURN(Vocabulary vocabulary, VocabularyOf(file));
  Unigram::Settings settings{.byte_fallback = file.byte_fallback, .single_precision = true};
  std::vector<double> scores;
  float best = -std::numeric_limits<float>::infinity();
  for (const SentencePiece& piece : file.list) {
    if (piece.type == kNormal) best = std::max(best, piece.score);
  }
  for (std::size_t id = 0; id < file.list.size(); ++id) {
    const SentencePiece& piece = file.list[id];
    // User-defined pieces score better than any piece of the trained model.
    const float bonus = static_cast<float>(piece.text.size()) * best - 0.1F;
    scores.push_back(static_cast<double>(piece.type == kUserDefined ? bonus : piece.score));
    settings.hidden.push_back(piece.type != kNormal && piece.type != kUserDefined);
    if (piece.type == kUnknown) settings.unk_id = static_cast<std::uint32_t>(id);
  }
  return std::unique_ptr<Model>(
      std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), std::move(settings)));
}

// Control pieces match in texts as special tokens, as in transformers.
StatusOr<AddedTokens> SpecialTokensOf(const SentencePieceFile& file,
                                      const TokenizationPipeline& pipeline,
                                      std::vector<AddedToken> added) {
  std::vector<AddedToken> tokens;
  for (const SentencePiece& piece : file.list) {
    if (piece.type != kControl && piece.type != kUnknown) continue;
    tokens.push_back({.content = piece.text, .normalized = false, .special = true});
  }
  tokens.insert(tokens.end(), added.begin(), added.end());
  return AddedTokens::Create(std::move(tokens), pipeline.model->vocabulary(),
                             pipeline.normalizer.get());
}

// The config sets whether texts begin and end with special tokens; by default the class does.
StatusOr<PostProcessor> ReadEnds(const JsonObject& config, const SentencePieceFile& file) {
  DS_ASSIGN_OR_RETURN(const std::string name, config.TextOr("tokenizer_class", ""));
  const bool begins =
      name.starts_with("Llama") || name.starts_with("CodeLlama") || name.starts_with("Gemma");
  DS_ASSIGN_OR_RETURN(const bool bos, config.FlagOr("add_bos_token", begins));
  DS_ASSIGN_OR_RETURN(const bool eos, config.FlagOr("add_eos_token", name.starts_with("T5")));
  const auto end = [&](bool wanted, std::int64_t id, std::string_view key) -> StatusOr<Template> {
    if (!wanted) return Template();
    if (id < 0 || static_cast<std::size_t>(id) >= file.list.size()) {
      return config.Error(key, "is set, but the model has no such token");
    }
    return Template{
        {-1, 0, {static_cast<std::uint32_t>(id)}, {file.list[static_cast<std::size_t>(id)].text}}};
  };
  DS_ASSIGN_OR_RETURN(const Template before, end(bos, file.bos_id, "add_bos_token"));
  DS_ASSIGN_OR_RETURN(const Template end_template, end(eos, file.eos_id, "add_eos_token"));
  return PostProcessor::Around(before, end_template);
}

constexpr std::uint32_t kAllBlanks = std::uint32_t{1} << 30;

// Turns ▁ into a blank and bytes into text, and removes the blank before the text.
StatusOr<std::vector<std::unique_ptr<Decoder>>> DecoderOf(const SentencePieceFile& file) {
  Json decoders = Json::array();
  decoders.push_back(
      {{"type", "Replace"}, {"pattern", {{"String", "\xE2\x96\x81"}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  // Blanks that were removed at the ends of texts are not restored.
  const std::uint32_t blanks = file.rules.remove_extra_blanks ? kAllBlanks
                               : file.rules.add_dummy_prefix  ? 1
                                                              : 0;
  decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", blanks}, {"stop", 0U}});
  const Json sequence = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  DS_ASSIGN_OR_RETURN(const JsonObject object,
                      JsonObject::From(sequence, "tokenizer.model", "decoder"));
  return ReadDecoder(object);
}

StatusOr<TokenizationPipeline> MakePipeline(const SentencePieceFile& file,
                                            std::vector<AddedToken> added) {
  if (file.model_type != kUnigramModel && file.model_type != kBpeModel) {
    return UnimplementedError("its model type is " + std::to_string(file.model_type) +
                              ", and dsrun supports unigram (1) and BPE (2)");
  }
  TokenizationPipeline pipeline;
  DS_ASSIGN_OR_RETURN(pipeline.model,
                      file.model_type == kBpeModel ? MakeBpe(file) : MakeUnigram(file));
  DS_ASSIGN_OR_RETURN(Charsmap map, Charsmap::Parse(file.charsmap));
  std::vector<std::pair<std::string, std::uint32_t>> defined;
  for (std::size_t id = 0; id < file.list.size(); ++id) {
    if (file.list[id].type == kUserDefined) {
      defined.emplace_back(file.list[id].text, static_cast<std::uint32_t>(id));
    }
  }
  const auto symbols = std::make_shared<const ByteTrie>(std::move(defined));
  pipeline.normalizer = MakeSentencePieceNormalizer(std::move(map), file.rules, symbols);
  if (file.model_type == kBpeModel && !symbols->empty()) {
    pipeline.pre_tokenizer.push_back(MakeSymbolSplit(symbols));
  }
  DS_ASSIGN_OR_RETURN(pipeline.added, SpecialTokensOf(file, pipeline, std::move(added)));
  DS_ASSIGN_OR_RETURN(pipeline.decoder, DecoderOf(file));
  return pipeline;
}

}  // namespace

StatusOr<TokenizationPipeline> ParseSentencePieceModel(std::string_view bytes,
                                                       const JsonObject* config,
                                                       std::vector<AddedToken> added) {
  DS_ASSIGN_OR_RETURN(const SentencePieceFile file, ParseSentencePieceFile(bytes));
  DS_ASSIGN_OR_RETURN(TokenizationPipeline pipeline, MakePipeline(file, std::move(added)));
  if (config != nullptr) {
    DS_ASSIGN_OR_RETURN(pipeline.post_processor, ReadEnds(*config, file));
  }
  return pipeline;
}

StatusOr<SentencePieceVocabulary> ReadSentencePieceVocabulary(std::string_view bytes) {
  DS_ASSIGN_OR_RETURN(const SentencePieceFile file, ParseSentencePieceFile(bytes));
  if (file.model_type != kBpeModel) {
    return UnimplementedError("its model type is " + std::to_string(file.model_type) +
                              ", and the Llama class has BPE (2)");
  }
  DS_ASSIGN_OR_RETURN(const Vocabulary vocabulary, VocabularyOf(file));
  SentencePieceVocabulary read{Json::object(), Json::array(), Json::array()};
  for (std::size_t id = 0; id < file.list.size(); ++id) {
    const auto& [text, score, type] = file.list[id];
    read.vocabulary[text] = id;
    for (std::size_t boundary = 1; boundary < text.size(); ++boundary) {
      if ((static_cast<unsigned char>(text[boundary]) & 0xC0) == 0x80) continue;
      if (!vocabulary.Find(text.substr(0, boundary)) || !vocabulary.Find(text.substr(boundary)))
        continue;
      read.merges.push_back({text.substr(0, boundary), text.substr(boundary)});
    }
    if (type != kControl && type != kUserDefined) continue;
    read.own_tokens.push_back(
        {{"content", text}, {"normalized", false}, {"special", type == kControl}});
  }
  return read;
}

namespace {

constexpr std::string_view kEscapedBlank = "\xE2\x96\x81";  // U+2581

// Returns the length and the id of the longest symbol that a text begins with; length 0 when there
// is none.
std::pair<std::size_t, std::uint32_t> LongestSymbol(const ByteTrie& symbols,
                                                    std::string_view text) {
  std::pair<std::size_t, std::uint32_t> found{0, 0};
  symbols.ForEachPrefix(text, [&](std::size_t length, std::uint32_t id) { found = {length, id}; });
  return found;
}

class SentencePieceNormalizer final : public Normalizer {
 public:
  SentencePieceNormalizer(Charsmap map, BlankRules rules, std::shared_ptr<const ByteTrie> symbols)
      : map_(std::move(map)),
        rules_(rules),
        symbols_(std::move(symbols)),
        blank_(rules.escape_blanks ? kEscapedBlank : " ") {}

  Status Apply(AlignedText* text) const override {
    std::vector<AlignedText::Rewritten> out;
    const std::string& old = text->text();
    std::uint32_t at = 0;
    while (rules_.remove_extra_blanks && at < old.size()) {
      const AlignedText::Rewritten next = Next(old, at);
      if (next.text != " ") break;
      at = next.end;
    }
    if (at >= old.size()) {
      text->Rewrite({});
      return OkStatus();
    }
    if (rules_.add_dummy_prefix && !rules_.blanks_as_suffix) out.push_back({blank_, at, at});
    bool after_blank = rules_.remove_extra_blanks;
    while (at < old.size()) {
      AlignedText::Rewritten next = Next(old, at);
      at = next.end;
      while (after_blank && next.text.starts_with(' ')) next.text.erase(0, 1);
      if (!next.text.empty()) after_blank = next.text.ends_with(' ');
      if (!rules_.remove_extra_blanks) after_blank = false;
      Escape(&next.text);
      out.push_back(std::move(next));
    }
    while (rules_.remove_extra_blanks && !out.empty() &&
           (out.back().text.empty() || out.back().text.ends_with(blank_))) {
      std::string& last = out.back().text;
      if (last.ends_with(blank_)) last.resize(last.size() - blank_.size());
      if (last.empty()) out.pop_back();
    }
    if (rules_.add_dummy_prefix && rules_.blanks_as_suffix) out.push_back({blank_, at, at});
    text->Rewrite(out);
    return OkStatus();
  }

 private:
  // Returns the next unit of the text: a symbol, a replacement of the table, or a character.
  AlignedText::Rewritten Next(const std::string& text, std::uint32_t at) const {
    const std::string_view rest = std::string_view(text).substr(at);
    const auto made = [&](std::string_view with, std::size_t length) {
      return AlignedText::Rewritten{std::string(with), at, at + static_cast<std::uint32_t>(length)};
    };
    if (const std::size_t length = LongestSymbol(*symbols_, rest).first; length > 0) {
      return made(rest.substr(0, length), length);
    }
    if (const auto found = map_.FindLongest(rest)) return made(found->text, found->length);
    const std::size_t length = Utf8Length(rest.front());
    return made(rest.substr(0, length), length);
  }

  void Escape(std::string* text) const {
    if (!rules_.escape_blanks) return;
    for (std::size_t i = text->find(' '); i != std::string::npos; i = text->find(' ', i)) {
      text->replace(i, 1, kEscapedBlank);
    }
  }

  Charsmap map_;
  BlankRules rules_;
  std::shared_ptr<const ByteTrie> symbols_;
  std::string blank_;
};

class SymbolSplit final : public PreTokenizer {
 public:
  explicit SymbolSplit(std::shared_ptr<const ByteTrie> symbols) : symbols_(std::move(symbols)) {}

  Status Apply(PreTokenizedText* words) const override {
    words->SplitTokens([this](std::string_view text) { return LongestSymbol(*symbols_, text); });
    return OkStatus();
  }

 private:
  std::shared_ptr<const ByteTrie> symbols_;
};

}  // namespace

std::unique_ptr<Normalizer> MakeSentencePieceNormalizer(Charsmap map, BlankRules rules,
                                                        std::shared_ptr<const ByteTrie> symbols) {
  return std::make_unique<SentencePieceNormalizer>(std::move(map), rules, std::move(symbols));
}

std::unique_ptr<PreTokenizer> MakeSymbolSplit(std::shared_ptr<const ByteTrie> symbols) {
  return std::make_unique<SymbolSplit>(std::move(symbols));
}

}  // namespace ds::tokenizer
