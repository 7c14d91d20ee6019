#include "runtime/tokenizer/corpus/tokenizer_folder.h"

#include "runtime/base/files.h"
#include "runtime/tokenizer/file/read_tokenizer.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr std::uint64_t kMostConfigBytes = std::uint64_t{256} << 20;
constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                        "sep_token", "cls_token", "mask_token"};

StatusOr<OrderedJson> ReadConfig(const fs::path& file) {
  if (!fs::exists(file)) return OrderedJson::object();
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMostConfigBytes));
  OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgumentError(ShortenPath(file) + ": no JSON object");
  return json;
}

// A token's text: as it is, or as an object with its content.
std::optional<std::string> ContentOf(const OrderedJson& config, const char* name) {
  const auto found = config.find(name);
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_object() || !found->contains("content")) return std::nullopt;
  const OrderedJson& content = (*found)["content"];
  return content.is_string() ? std::optional(content.get<std::string>()) : std::nullopt;
}

// Special tokens are named by tokenizer_config.json, and where that leaves one open by the file
// beside it in which older folders have them.
StatusOr<OrderedJson> ReadNamedTokens(const fs::path& folder, const OrderedJson& config) {
  DS_ASSIGN_OR_RETURN(OrderedJson named, ReadConfig(folder / "special_tokens_map.json"));
  for (const char* name : kNamedTokens) {
    const auto found = config.find(name);
    if (found != config.end() && !found->is_null()) named[name] = *found;
  }
  return named;
}

// By its name, or, where no file of the tokenizer has one, as in GPT-2's folder, by the model's id.
std::optional<std::uint32_t> FindEndOfText(const Tokenizer& tokenizer, const OrderedJson& named,
                                           const OrderedJson& model) {
  if (const auto end = ContentOf(named, "eos_token")) return tokenizer.IdOf(*end);
  OrderedJson id = model.value("eos_token_id", OrderedJson());
  if (id.is_array() && !id.empty()) id = OrderedJson(id.front());
  const bool is_id = id.is_number_unsigned() && id.get<std::uint64_t>() < tokenizer.id_limit();
  return is_id ? std::optional(id.get<std::uint32_t>()) : std::nullopt;
}

// The folder's template: a file of its own, else the config's, of several the default one.
StatusOr<std::optional<std::string>> FindChatTemplate(const fs::path& folder,
                                                      const OrderedJson& config) {
  const fs::path file = folder / "chat_template.jinja";
  if (fs::exists(file)) {
    DS_ASSIGN_OR_RETURN(std::string text, ReadFile(file, kMostConfigBytes));
    return std::optional(std::move(text));
  }
  const auto found = config.find("chat_template");
  if (found == config.end()) return std::optional<std::string>();
  if (found->is_string()) return std::optional(found->get<std::string>());
  for (const OrderedJson& each : *found) {
    const bool is_default = each.is_object() && each.value("name", OrderedJson()) == "default" &&
                            each.value("template", OrderedJson()).is_string();
    if (is_default) return std::optional(each["template"].get<std::string>());
  }
  return std::optional<std::string>();
}

}  // namespace

std::vector<fs::path> TokenizerFilesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const char* name :
       {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model", "tokenizer_config.json",
        "special_tokens_map.json", "config.json", "chat_template.jinja"}) {
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
  TokenizerFolder read{std::move(tokenizer), {}, {}, OrderedJson::object()};
  DS_ASSIGN_OR_RETURN(const OrderedJson config, ReadConfig(folder / "tokenizer_config.json"));
  DS_ASSIGN_OR_RETURN(const OrderedJson named, ReadNamedTokens(folder, config));
  for (const char* name : kNamedTokens) {
    if (const auto content = ContentOf(named, name)) read.chat_variables[name] = *content;
  }
  DS_ASSIGN_OR_RETURN(const OrderedJson model, ReadConfig(folder / "config.json"));
  read.end_of_text = FindEndOfText(read.tokenizer, named, model);
  DS_ASSIGN_OR_RETURN(const auto source, FindChatTemplate(folder, config));
  if (!source) return read;
  auto parsed = ChatTemplate::Parse(*source);
  if (!parsed.ok()) return parsed.status().WithContext(ShortenPath(folder) + ": chat template");
  read.chat_template = *std::move(parsed);
  return read;
}

}  // namespace ds::tokenizer
