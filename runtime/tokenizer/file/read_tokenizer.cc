#include "runtime/tokenizer/file/read_tokenizer.h"

#include <algorithm>
#include <map>

#include "runtime/base/files.h"
#include "runtime/base/parse_number.h"
#include "runtime/tokenizer/file/sentencepiece_model.h"
#include "runtime/tokenizer/tokenizer_parts.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;

// Classes of transformers whose two files mean what GPT-2's do.
constexpr std::string_view kGpt2Classes[] = {"GPT2Tokenizer", "GPT2TokenizerFast"};

StatusOr<Json> ReadJsonAt(const fs::path& file) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxTokenizerBytes));
  return ParseJsonFile(text, ShortenPath(file));
}

StatusOr<Json> ReadMergeLines(const fs::path& file) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxTokenizerBytes));
  Json lines = Json::array();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

// The special tokens, in the order of their ids: those of the config, else GPT-2's own.
StatusOr<Json> SpecialTokens(const fs::path& folder, const Json& vocabulary) {
  const fs::path file = folder / "tokenizer_config.json";
  Json tokens = Json::array();
  if (!fs::exists(file)) {
    const auto known = vocabulary.find("<|endoftext|>");
    if (known != vocabulary.end()) {
      tokens.push_back(
          {{"id", *known}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}});
    }
    return tokens;
  }
  DS_ASSIGN_OR_RETURN(const Json config, ReadJsonAt(file));
  DS_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::From(config, ShortenPath(file), ""));
  DS_ASSIGN_OR_RETURN(const std::string name, root.TextOr("tokenizer_class", "GPT2Tokenizer"));
  if (std::find(std::begin(kGpt2Classes), std::end(kGpt2Classes), name) == std::end(kGpt2Classes)) {
    return UnimplementedError(root.Where("tokenizer_class") + ": vocab.json and merges.txt of '" +
                              name +
                              "' are none that dsrun knows; it needs the tokenizer.json that "
                              "transformers saves");
  }
  if (root.Find("added_tokens_decoder") == nullptr) return tokens;
  DS_ASSIGN_OR_RETURN(const JsonObject added, root.Object("added_tokens_decoder"));
  std::map<std::uint32_t, Json> by_id;
  for (const auto& [key, token] : added.json().items()) {
    const auto id = ParseNumber<std::uint32_t>(key);
    if (!id || !token.is_object()) return added.Error(key, "must be a token under its id");
    by_id[*id] = token;
    by_id[*id]["id"] = *id;
  }
  for (auto& [id, token] : by_id) tokens.push_back(std::move(token));
  return tokens;
}

// Reads GPT-2's two files, vocab.json and merges.txt, as the tokenizer.json that they mean: bytes
// as letters, GPT-2's words, and the special tokens of tokenizer_config.json.
StatusOr<Json> ReadGpt2Files(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(Json vocabulary, ReadJsonAt(folder / "vocab.json"));
  DS_ASSIGN_OR_RETURN(Json merges, ReadMergeLines(folder / "merges.txt"));
  DS_ASSIGN_OR_RETURN(Json special, SpecialTokens(folder, vocabulary));
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}};
  Json root;
  root["added_tokens"] = std::move(special);
  root["pre_tokenizer"] = byte_level;
  root["post_processor"] = byte_level;
  root["decoder"] = byte_level;
  root["model"] = {{"type", "BPE"}};
  root["model"]["vocab"] = std::move(vocabulary);
  root["model"]["merges"] = std::move(merges);
  return root;
}

StatusOr<std::vector<AddedToken>> ReadAddedTokens(const JsonObject& root) {
  std::vector<AddedToken> tokens;
  if (root.Find("added_tokens") == nullptr) return tokens;
  DS_ASSIGN_OR_RETURN(const auto objects, root.Objects("added_tokens"));
  for (const JsonObject& object : objects) {
    AddedToken token;
    DS_ASSIGN_OR_RETURN(token.content, object.Text("content"));
    DS_ASSIGN_OR_RETURN(token.special, object.FlagOr("special", false));
    DS_ASSIGN_OR_RETURN(token.single_word, object.FlagOr("single_word", false));
    DS_ASSIGN_OR_RETURN(token.lstrip, object.FlagOr("lstrip", false));
    DS_ASSIGN_OR_RETURN(token.rstrip, object.FlagOr("rstrip", false));
    DS_ASSIGN_OR_RETURN(token.normalized, object.FlagOr("normalized", !token.special));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// What the file says a token's id is has to be the id that it gets.
Status CheckIds(const JsonObject& root, const AddedTokens& added) {
  if (root.Find("added_tokens") == nullptr) return OkStatus();
  DS_ASSIGN_OR_RETURN(const auto objects, root.Objects("added_tokens"));
  for (const JsonObject& object : objects) {
    DS_ASSIGN_OR_RETURN(const std::string content, object.Text("content"));
    DS_ASSIGN_OR_RETURN(const std::uint32_t id, object.Number("id"));
    const auto given = added.Find(content);
    if (given && *given != id) {
      return object.Error("id", "is " + std::to_string(id) + ", but '" + content +
                                    "' is the token " + std::to_string(*given));
    }
  }
  return OkStatus();
}

StatusOr<TokenizerParts> ReadParts(const JsonObject& root) {
  TokenizerParts parts;
  if (root.Find("normalizer") != nullptr) {
    DS_ASSIGN_OR_RETURN(const JsonObject component, root.Object("normalizer"));
    DS_ASSIGN_OR_RETURN(parts.normalizer, ReadNormalizer(component));
  }
  if (root.Find("pre_tokenizer") != nullptr) {
    DS_ASSIGN_OR_RETURN(const JsonObject component, root.Object("pre_tokenizer"));
    DS_ASSIGN_OR_RETURN(parts.pre_tokenizer, ReadPreTokenizer(component));
  }
  DS_ASSIGN_OR_RETURN(const JsonObject model, root.Object("model"));
  DS_ASSIGN_OR_RETURN(parts.model, ReadModel(model));
  if (root.Find("post_processor") != nullptr) {
    DS_ASSIGN_OR_RETURN(const JsonObject component, root.Object("post_processor"));
    DS_ASSIGN_OR_RETURN(parts.post_processor, PostProcessor::Read(component));
  }
  if (root.Find("decoder") != nullptr) {
    DS_ASSIGN_OR_RETURN(const JsonObject component, root.Object("decoder"));
    DS_ASSIGN_OR_RETURN(parts.decoder, ReadDecoder(component));
  }
  if (root.Find("truncation") != nullptr) {
    DS_ASSIGN_OR_RETURN(const JsonObject component, root.Object("truncation"));
    DS_ASSIGN_OR_RETURN(parts.truncation, ReadTruncation(component));
  }
  DS_ASSIGN_OR_RETURN(std::vector<AddedToken> tokens, ReadAddedTokens(root));
  DS_ASSIGN_OR_RETURN(parts.added, AddedTokens::Create(std::move(tokens), parts.model->vocabulary(),
                                                       parts.normalizer.get()));
  DS_RETURN_IF_ERROR(CheckIds(root, parts.added));
  return parts;
}

StatusOr<Tokenizer> MakeTokenizer(const Json& json, const std::string& name) {
  DS_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::From(json, name, ""));
  DS_ASSIGN_OR_RETURN(const std::string version, root.TextOr("version", "1.0"));
  if (version != "1.0") return root.Error("version", "must be 1.0, not '" + version + "'");
  DS_ASSIGN_OR_RETURN(TokenizerParts parts, ReadParts(root));
  return Tokenizer(std::move(parts));
}

StatusOr<Tokenizer> ReadSentencePieceFolder(const fs::path& folder) {
  const fs::path file = folder / "tokenizer.model", config_file = folder / "tokenizer_config.json";
  DS_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file, kMaxTokenizerBytes));
  Json json;
  std::optional<JsonObject> config;
  if (fs::exists(config_file)) {
    DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(config_file, kMaxTokenizerBytes));
    DS_ASSIGN_OR_RETURN(json, ParseJsonFile(text, ShortenPath(config_file)));
    DS_ASSIGN_OR_RETURN(config, JsonObject::From(json, ShortenPath(config_file), ""));
  }
  auto parts = ParseSentencePieceModel(bytes, config ? &*config : nullptr);
  if (!parts.ok()) return parts.status().WithContext(ShortenPath(file));
  return Tokenizer(*std::move(parts));
}

}  // namespace

StatusOr<Tokenizer> ParseTokenizerJson(std::string_view text, const std::string& name) {
  DS_ASSIGN_OR_RETURN(const Json json, ParseJsonFile(text, name));
  return MakeTokenizer(json, name);
}

StatusOr<Tokenizer> ReadTokenizer(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error) && !fs::exists(path / "tokenizer.json", error)) {
    if (fs::exists(path / "vocab.json", error) && fs::exists(path / "merges.txt", error)) {
      DS_ASSIGN_OR_RETURN(const Json json, ReadGpt2Files(path));
      return MakeTokenizer(json, ShortenPath(path) + " (vocab.json, merges.txt)");
    }
    if (fs::exists(path / "tokenizer.model", error)) {
      return ReadSentencePieceFolder(path);
    }
    return NotFoundError(
        ShortenPath(path) +
        " has no tokenizer.json, no vocab.json with merges.txt and no tokenizer.model");
  }
  const fs::path file = fs::is_directory(path, error) ? path / "tokenizer.json" : path;
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxTokenizerBytes));
  return ParseTokenizerJson(text, ShortenPath(file));
}

}  // namespace ds::tokenizer
