#include "runtime/tokenizer/file/old_layouts.h"

#include <algorithm>

#include "runtime/base/files.h"
#include "runtime/tokenizer/file/sentencepiece_model.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr char kEndOfText[] = "<|endoftext|>";
constexpr char kQwen2Words[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// A class of transformers, and its default tokens, used where no file names them.
struct TokenizerClass {
  std::string_view name;
  enum class Kind { kGpt2, kQwen2, kLlama } kind;
  Json tokens;
};

const std::vector<TokenizerClass>& Classes() {
  using Kind = TokenizerClass::Kind;
  static const std::vector<TokenizerClass> classes = [] {
    const Json gpt2 = {
        {"bos_token", kEndOfText}, {"eos_token", kEndOfText}, {"unk_token", kEndOfText}};
    const Json qwen2 = {
        {"eos_token", kEndOfText}, {"pad_token", kEndOfText}, {"unk_token", kEndOfText}};
    const Json llama = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
    return std::vector<TokenizerClass>{
        {"GPT2Tokenizer", Kind::kGpt2, gpt2},    {"GPT2TokenizerFast", Kind::kGpt2, gpt2},
        {"Qwen2Tokenizer", Kind::kQwen2, qwen2}, {"Qwen2TokenizerFast", Kind::kQwen2, qwen2},
        {"LlamaTokenizer", Kind::kLlama, llama}, {"LlamaTokenizerFast", Kind::kLlama, llama}};
  }();
  return classes;
}

const TokenizerClass* FindClass(std::string_view name) {
  const auto found = std::find_if(Classes().begin(), Classes().end(),
                                  [&](const TokenizerClass& each) { return each.name == name; });
  return found == Classes().end() ? nullptr : &*found;
}

bool HasTwoFiles(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "vocab.json", error) && fs::exists(folder / "merges.txt", error);
}

StatusOr<Json> ReadVocabulary(const fs::path& file) {
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

// Adds the steps of the class around its model: normalizer, pre-tokenizer, decoder.
void AddWords(TokenizerClass::Kind kind, bool prefix, Json* root) {
  const bool is_gpt2 = kind == TokenizerClass::Kind::kGpt2;
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", prefix},
                      {"trim_offsets", false},
                      {"use_regex", is_gpt2}};
  (*root)["decoder"] = bytes;
  if (is_gpt2) {
    (*root)["pre_tokenizer"] = bytes;
    return;
  }
  const Json words = {{"type", "Split"},
                      {"pattern", {{"Regex", kQwen2Words}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  (*root)["normalizer"] = {{"type", "NFC"}};
  (*root)["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({words, bytes})}};
}

// Fills in the added tokens, and the tokens around a text.
Status AddTokens(const SideFiles& files, const TokenizerClass& of, const Json& own,
                 OldLayout* layout) {
  DS_ASSIGN_OR_RETURN(const bool splits, files.FlagOr("split_special_tokens", false));
  if (splits) {
    return UnimplementedError(files.config_name + ": split_special_tokens true is not built");
  }
  const Json named = files.NamedTokens(of.tokens);
  DS_ASSIGN_OR_RETURN(Json added, ListAddedTokens(files, named, own));
  if (of.kind == TokenizerClass::Kind::kQwen2) {
    // The class adds its special tokens once more, as plain ones.
    for (const Json& token : Json(added)) {
      const bool is_named = std::any_of(named.begin(), named.end(), [&](const Json& name) {
        return ContentOfToken(name) == ContentOfToken(token);
      });
      if (is_named) added.push_back({{"content", token["content"]}, {"special", true}});
    }
  }
  layout->root["added_tokens"] = std::move(added);
  DS_ASSIGN_OR_RETURN(const bool begins, files.FlagOr("add_bos_token", false));
  DS_ASSIGN_OR_RETURN(const bool ends, files.FlagOr("add_eos_token", false));
  if (begins) layout->begin = ContentOfToken(named.value("bos_token", Json()));
  if (ends) layout->end = ContentOfToken(named.value("eos_token", Json()));
  return OkStatus();
}

Json LlamaDecoder(bool prefix) {
  Json decoders = Json::array();
  decoders.push_back(
      {{"type", "Replace"}, {"pattern", {{"String", "\xE2\x96\x81"}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1U}, {"stop", 0U}});
  }
  return {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
}

}  // namespace

StatusOr<OldLayout> ReadTwoFiles(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(const SideFiles files, ReadSideFiles(folder));
  DS_ASSIGN_OR_RETURN(std::string name, files.ClassName());
  if (name.empty()) name = "GPT2Tokenizer";
  const TokenizerClass* const of = FindClass(name);
  if (of == nullptr || of->kind == TokenizerClass::Kind::kLlama) {
    return UnimplementedError(
        files.config_name + ": tokenizer_class: vocab.json and merges.txt of '" + name +
        "' are not supported; it needs the tokenizer.json that transformers saves");
  }
  OldLayout layout{.name = ShortenPath(folder) + " (vocab.json, merges.txt)"};
  Json& model = layout.root["model"];
  model["type"] = "BPE";
  DS_ASSIGN_OR_RETURN(model["vocab"], ReadVocabulary(folder / "vocab.json"));
  DS_ASSIGN_OR_RETURN(model["merges"], ReadMergeLines(folder / "merges.txt"));
  DS_ASSIGN_OR_RETURN(const bool prefix, files.FlagOr("add_prefix_space", false));
  AddWords(of->kind, prefix, &layout.root);
  DS_RETURN_IF_ERROR(AddTokens(files, *of, Json::array(), &layout));
  return layout;
}

StatusOr<std::optional<OldLayout>> ReadLlamaModel(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(const SideFiles files, ReadSideFiles(folder));
  DS_ASSIGN_OR_RETURN(const std::string name, files.ClassName());
  const TokenizerClass* const of = FindClass(name);
  if (of == nullptr || of->kind != TokenizerClass::Kind::kLlama) return std::optional<OldLayout>();
  const fs::path file = folder / "tokenizer.model";
  DS_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file, kMaxTokenizerBytes));
  auto read = ReadSentencePieceVocabulary(bytes);
  if (!read.ok()) return read.status().WithContext(ShortenPath(file));
  OldLayout layout{.name = ShortenPath(file)};
  layout.root["model"] = {{"type", "BPE"}, {"fuse_unk", true}, {"byte_fallback", true}};
  layout.root["model"]["vocab"] = std::move(read->vocabulary);
  layout.root["model"]["merges"] = std::move(read->merges);
  DS_ASSIGN_OR_RETURN(const bool prefix, files.FlagOr("add_prefix_space", true));
  DS_ASSIGN_OR_RETURN(const bool legacy, files.FlagOr("legacy", false));
  const char* const scheme = !prefix ? "never" : legacy ? "always" : "first";
  layout.root["pre_tokenizer"] = {{"type", "Metaspace"},
                                  {"replacement", "\xE2\x96\x81"},
                                  {"prepend_scheme", scheme},
                                  {"split", false}};
  layout.root["decoder"] = LlamaDecoder(prefix);
  DS_RETURN_IF_ERROR(AddTokens(files, *of, read->own_tokens, &layout));
  return std::optional(std::move(layout));
}

StatusOr<Json> ReadNamedTokens(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(const SideFiles files, ReadSideFiles(folder));
  std::error_code error;
  if (fs::exists(folder / "tokenizer.json", error)) return files.NamedTokens(Json::object());
  DS_ASSIGN_OR_RETURN(std::string name, files.ClassName());
  if (name.empty() && HasTwoFiles(folder)) name = "GPT2Tokenizer";
  const TokenizerClass* const of = FindClass(name);
  return files.NamedTokens(of == nullptr ? Json::object() : of->tokens);
}

}  // namespace ds::tokenizer
