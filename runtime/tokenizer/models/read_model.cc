#include "runtime/base/printable.h"
#include "runtime/tokenizer/models/bpe.h"
#include "runtime/tokenizer/models/model.h"
#include "runtime/tokenizer/models/unigram.h"
#include "runtime/tokenizer/models/word_models.h"

namespace ds::tokenizer {
namespace {

using MadeModel = StatusOr<std::unique_ptr<Model>>;

// Reads "a b" or ["a", "b"].
StatusOr<std::pair<std::string, std::string>> ReadMerge(const Json& merge) {
  const Status bad = InvalidArgumentError("must be two tokens");
  if (merge.is_array()) {
    if (merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) return bad;
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  if (!merge.is_string()) return bad;
  const auto& text = merge.get_ref<const std::string&>();
  const std::size_t blank = text.find(' ');
  if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) return bad;
  return std::pair(text.substr(0, blank), text.substr(blank + 1));
}

StatusOr<Bpe::Merges> ReadMerges(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(const Json* list, component.Need("merges"));
  if (!list->is_array()) return component.Error("merges", "must be a list");
  Bpe::Merges merges;
  merges.reserve(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& merge = (*list)[i];
    const bool is_comment =
        merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version");
    if (is_comment) continue;
    auto pair = ReadMerge(merge);
    if (!pair.ok()) {
      return component.Error("merges[" + std::to_string(i) + "]", pair.status().message());
    }
    merges.push_back(*std::move(pair));
  }
  return merges;
}

MadeModel ReadBpe(const JsonObject& component) {
  const Json* dropout = component.Find("dropout");
  if (dropout != nullptr && (!dropout->is_number() || dropout->get<double>() != 0)) {
    return UnimplementedError(component.Where("dropout") +
                              " makes ids random, which dsrun does not do");
  }
  BpeSettings settings;
  DS_ASSIGN_OR_RETURN(settings.unk_token, component.TextOr("unk_token", ""));
  DS_ASSIGN_OR_RETURN(settings.continuing_subword_prefix,
                      component.TextOr("continuing_subword_prefix", ""));
  DS_ASSIGN_OR_RETURN(settings.end_of_word_suffix, component.TextOr("end_of_word_suffix", ""));
  DS_ASSIGN_OR_RETURN(settings.fuse_unk, component.FlagOr("fuse_unk", false));
  DS_ASSIGN_OR_RETURN(settings.byte_fallback, component.FlagOr("byte_fallback", false));
  DS_ASSIGN_OR_RETURN(settings.ignore_merges, component.FlagOr("ignore_merges", false));
  DS_ASSIGN_OR_RETURN(const Bpe::Merges merges, ReadMerges(component));
  DS_ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(component));
  auto bpe = Bpe::Create(std::move(vocabulary), merges, std::move(settings));
  if (!bpe.ok()) return component.Error("merges", "are wrong: " + bpe.status().message());
  return std::unique_ptr<Model>(*std::move(bpe));
}

MadeModel ReadWordPiece(const JsonObject& component) {
  WordPiece::Settings settings;
  DS_ASSIGN_OR_RETURN(settings.unk_token, component.Text("unk_token"));
  DS_ASSIGN_OR_RETURN(settings.continuing_subword_prefix,
                      component.Text("continuing_subword_prefix"));
  DS_ASSIGN_OR_RETURN(settings.max_input_chars_per_word,
                      component.Number("max_input_chars_per_word"));
  DS_ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(component));
  return std::unique_ptr<Model>(
      std::make_unique<WordPiece>(std::move(vocabulary), std::move(settings)));
}

MadeModel ReadWordLevel(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(std::string unk_token, component.Text("unk_token"));
  DS_ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(component));
  return std::unique_ptr<Model>(
      std::make_unique<WordLevel>(std::move(vocabulary), std::move(unk_token)));
}

// The vocabulary is a list of tokens and their scores; the index is the id.
MadeModel ReadUnigram(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(const Json* list, component.Need("vocab"));
  if (!list->is_array()) return component.Error("vocab", "must be a list of tokens with scores");
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    const bool good =
        entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number();
    if (!good) {
      return component.Error("vocab[" + std::to_string(i) + "]", "must be a token and its score");
    }
    DS_RETURN_IF_ERROR(
        vocabulary.Add(entry[0].get<std::string>(), static_cast<std::uint32_t>(i), list->size()));
    scores.push_back(entry[1].get<double>());
  }
  Unigram::Settings settings;
  if (component.Find("unk_id") != nullptr) {
    DS_ASSIGN_OR_RETURN(settings.unk_id, component.Number("unk_id"));
    if (*settings.unk_id >= scores.size()) {
      return component.Error("unk_id", "is no place in the vocabulary");
    }
  }
  DS_ASSIGN_OR_RETURN(settings.byte_fallback, component.FlagOr("byte_fallback", false));
  return std::unique_ptr<Model>(
      std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), settings));
}

// Returns the type that a file of the library's first versions implies.
std::string TypeByKeys(const JsonObject& component) {
  if (component.Find("merges") != nullptr) return "BPE";
  if (component.Find("max_input_chars_per_word") != nullptr) return "WordPiece";
  const Json* vocabulary = component.Find("vocab");
  if (vocabulary != nullptr && vocabulary->is_array()) return "Unigram";
  return "WordLevel";
}

}  // namespace

std::string Model::TextOf(const Token& token, std::string_view) const {
  const std::string* text = vocabulary_.TokenOf(token.id);
  return text == nullptr ? "" : *text;
}

StatusOr<Vocabulary> ReadVocabulary(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(const JsonObject vocab, component.Object("vocab"));
  Vocabulary vocabulary;
  for (const auto& [token, id] : vocab.json().items()) {
    const bool good = id.is_number_unsigned() && id.get<std::uint64_t>() < 0xFFFFFFFFULL;
    if (!good) return vocab.Error(token, "must be an id, not " + Printable(id.dump()));
    const Status added = vocabulary.Add(token, static_cast<std::uint32_t>(id.get<std::uint64_t>()),
                                        vocab.json().size());
    if (!added.ok()) return component.Error("vocab", "is wrong: " + added.message());
  }
  return vocabulary;
}

MadeModel ReadModel(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(std::string type, TypeOf(component));
  if (type.empty()) type = TypeByKeys(component);
  if (type == "BPE") return ReadBpe(component);
  if (type == "WordPiece") return ReadWordPiece(component);
  if (type == "Unigram") return ReadUnigram(component);
  if (type == "WordLevel") return ReadWordLevel(component);
  return UnknownType(component, "model", type);
}

}  // namespace ds::tokenizer
