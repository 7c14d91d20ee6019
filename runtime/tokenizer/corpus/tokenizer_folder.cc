#include "runtime/tokenizer/corpus/tokenizer_folder.h"

#include "runtime/base/files.h"
#include "runtime/base/path_exists.h"
#include "runtime/tokenizer/file/old_layouts.h"
#include "runtime/tokenizer/file/read_tokenizer.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;

StatusOr<Json> ReadConfig(const fs::path& file) {
  DS_ASSIGN_OR_RETURN(const bool exists, PathExists(file));
  if (!exists) return Json::object();
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxTokenizerBytes));
  return ParseJsonFile(text, ShortenPath(file));
}

// Finds the token by its name or, where no file of the tokenizer has one, as in GPT-2's folder, by
// the model's id.
std::optional<std::uint32_t> FindEndOfText(const Tokenizer& tokenizer, const Json& named,
                                           const Json& model) {
  if (const auto end = named.find("eos_token"); end != named.end()) {
    return tokenizer.IdOf(ContentOfToken(*end));
  }
  Json id = model.value("eos_token_id", Json());
  if (id.is_array() && !id.empty()) id = Json(id.front());
  const bool is_id = id.is_number_unsigned() && id.get<std::uint64_t>() < tokenizer.id_limit();
  return is_id ? std::optional(id.get<std::uint32_t>()) : std::nullopt;
}

// Returns the folder's template: a file of its own, else the config's; from several, the default
// one.
StatusOr<std::optional<std::string>> FindChatTemplate(const fs::path& folder, const Json& config) {
  const fs::path file = folder / "chat_template.jinja";
  DS_ASSIGN_OR_RETURN(const bool exists, PathExists(file));
  if (exists) {
    DS_ASSIGN_OR_RETURN(std::string text, ReadFile(file, kMaxTokenizerBytes));
    return std::optional(std::move(text));
  }
  const auto found = config.find("chat_template");
  if (found == config.end()) return std::optional<std::string>();
  if (found->is_string()) return std::optional(found->get<std::string>());
  for (const Json& each : *found) {
    const bool is_default = each.is_object() && each.value("name", Json()) == "default" &&
                            each.value("template", Json()).is_string();
    if (is_default) return std::optional(each["template"].get<std::string>());
  }
  return std::optional<std::string>();
}

}  // namespace

std::vector<fs::path> TokenizerFilesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const char* name :
       {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json", "config.json", "chat_template.jinja"}) {
    std::error_code error;
    if (fs::exists(folder / name, error)) files.push_back(folder / name);
  }
  return files;
}

bool HasTokenizer(const fs::path& folder) {
  std::error_code error;
  const auto has = [&](const char* name) { return fs::exists(folder / name, error); };
  return has("tokenizer.json") || has("tokenizer.model") ||
         (has("vocab.json") && has("merges.txt"));
}

StatusOr<TokenizerFolder> ReadTokenizerFolder(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(Tokenizer tokenizer, ReadTokenizer(folder));
  TokenizerFolder read{std::move(tokenizer), {}, {}, nlohmann::ordered_json::object()};
  DS_ASSIGN_OR_RETURN(const Json config, ReadConfig(folder / "tokenizer_config.json"));
  DS_ASSIGN_OR_RETURN(const Json named, ReadNamedTokens(folder));
  for (const auto& [name, token] : named.items()) read.chat_variables[name] = ContentOfToken(token);
  DS_ASSIGN_OR_RETURN(const Json model, ReadConfig(folder / "config.json"));
  read.end_of_text = FindEndOfText(read.tokenizer, named, model);
  DS_ASSIGN_OR_RETURN(const auto source, FindChatTemplate(folder, config));
  if (!source) return read;
  auto parsed = ChatTemplate::Parse(*source);
  if (!parsed.ok()) return parsed.status().WithContext(ShortenPath(folder) + ": chat template");
  read.chat_template = *std::move(parsed);
  return read;
}

}  // namespace ds::tokenizer
