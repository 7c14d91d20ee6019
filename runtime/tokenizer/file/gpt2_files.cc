#include "runtime/tokenizer/file/gpt2_files.h"

#include <algorithm>
#include <map>

#include "runtime/base/files.h"
#include "runtime/base/parse_number.h"

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

}  // namespace

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

}  // namespace ds::tokenizer
