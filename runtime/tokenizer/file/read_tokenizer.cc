#include "runtime/tokenizer/file/read_tokenizer.h"

#include <algorithm>

#include "runtime/base/files.h"
#include "runtime/tokenizer/file/old_layouts.h"
#include "runtime/tokenizer/file/sentencepiece_model.h"
#include "runtime/tokenizer/file/side_files.h"
#include "runtime/tokenizer/tokenization_pipeline.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;

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

// Checks that a token's id in the file equals the id that it gets.
Status CheckIds(const JsonObject& root, const AddedTokens& added) {
  if (root.Find("added_tokens") == nullptr) return OkStatus();
  DS_ASSIGN_OR_RETURN(const auto objects, root.Objects("added_tokens"));
  for (const JsonObject& object : objects) {
    if (object.Find("id") == nullptr) continue;  // of an old layout: the next free id
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

StatusOr<TokenizationPipeline> ReadPipeline(const JsonObject& root) {
  TokenizationPipeline pipeline;
  if (root.Find("normalizer") != nullptr) {
    DS_ASSIGN_OR_RETURN(const JsonObject component, root.Object("normalizer"));
    DS_ASSIGN_OR_RETURN(pipeline.normalizer, ReadNormalizer(component));
  }
  if (root.Find("pre_tokenizer") != nullptr) {
    DS_ASSIGN_OR_RETURN(const JsonObject component, root.Object("pre_tokenizer"));
    DS_ASSIGN_OR_RETURN(pipeline.pre_tokenizer, ReadPreTokenizer(component));
  }
  DS_ASSIGN_OR_RETURN(const JsonObject model, root.Object("model"));
  DS_ASSIGN_OR_RETURN(pipeline.model, ReadModel(model));
  if (root.Find("post_processor") != nullptr) {
    DS_ASSIGN_OR_RETURN(const JsonObject component, root.Object("post_processor"));
    DS_ASSIGN_OR_RETURN(pipeline.post_processor, PostProcessor::Read(component));
  }
  if (root.Find("decoder") != nullptr) {
    DS_ASSIGN_OR_RETURN(const JsonObject component, root.Object("decoder"));
    DS_ASSIGN_OR_RETURN(pipeline.decoder, ReadDecoder(component));
  }
  if (root.Find("truncation") != nullptr) {
    DS_ASSIGN_OR_RETURN(const JsonObject component, root.Object("truncation"));
    DS_ASSIGN_OR_RETURN(pipeline.truncation, ReadTruncation(component));
  }
  DS_ASSIGN_OR_RETURN(std::vector<AddedToken> tokens, ReadAddedTokens(root));
  DS_ASSIGN_OR_RETURN(pipeline.added,
                      AddedTokens::Create(std::move(tokens), pipeline.model->vocabulary(),
                                          pipeline.normalizer.get()));
  DS_RETURN_IF_ERROR(CheckIds(root, pipeline.added));
  return pipeline;
}

StatusOr<Tokenizer> MakeTokenizer(const Json& json, const std::string& name) {
  DS_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::From(json, name, ""));
  DS_ASSIGN_OR_RETURN(const std::string version, root.TextOr("version", "1.0"));
  if (version != "1.0") return root.Error("version", "must be 1.0, not '" + version + "'");
  DS_ASSIGN_OR_RETURN(TokenizationPipeline pipeline, ReadPipeline(root));
  return Tokenizer(std::move(pipeline));
}

// Returns the template with this token as its only entry; an empty one for "".
StatusOr<Template> FindEnd(const TokenizationPipeline& pipeline, const std::string& content,
                           const std::string& name) {
  if (content.empty()) return Template();
  std::optional<std::uint32_t> id = pipeline.added.Find(content);
  if (!id) id = pipeline.model->vocabulary().Find(content);
  if (!id) return InvalidArgumentError(name + ": there is no token '" + content + "'");
  return Template{{-1, 0, {*id}, {content}}};
}

StatusOr<Tokenizer> MakeFromLayout(const OldLayout& layout) {
  DS_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::From(layout.root, layout.name, ""));
  DS_ASSIGN_OR_RETURN(TokenizationPipeline pipeline, ReadPipeline(root));
  DS_ASSIGN_OR_RETURN(const Template before, FindEnd(pipeline, layout.begin, layout.name));
  DS_ASSIGN_OR_RETURN(const Template end_template, FindEnd(pipeline, layout.end, layout.name));
  pipeline.post_processor = PostProcessor::Around(before, end_template);
  return Tokenizer(std::move(pipeline));
}

// Classes with the ids of their tokenizer.model, with or without tokens around a text.
constexpr std::string_view kModelClasses[] = {"CodeLlama", "Gemma", "PreTrained", "Tokenizers"};

// Returns the added tokens of a folder with a tokenizer.model that is read as SentencePiece does.
StatusOr<std::vector<AddedToken>> ReadModelTokens(const SideFiles& files, Json* added) {
  DS_ASSIGN_OR_RETURN(const std::string name, files.ClassName());
  const bool known =
      name.empty() || std::any_of(std::begin(kModelClasses), std::end(kModelClasses),
                                  [&](std::string_view start) { return name.starts_with(start); });
  if (!known) {
    return UnimplementedError(
        files.config_name + ": tokenizer_class: tokenizer.model of '" + name +
        "' is not supported; it needs the tokenizer.json that transformers saves");
  }
  DS_ASSIGN_OR_RETURN(Json list,
                      ListAddedTokens(files, files.NamedTokens(Json::object()), Json::array()));
  (*added)["added_tokens"] = std::move(list);
  DS_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::From(*added, files.config_name, ""));
  return ReadAddedTokens(root);
}

StatusOr<Tokenizer> ReadSentencePieceFolder(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(const auto llama, ReadLlamaModel(folder));
  if (llama) return MakeFromLayout(*llama);
  const fs::path file = folder / "tokenizer.model";
  DS_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file, kMaxTokenizerBytes));
  DS_ASSIGN_OR_RETURN(const SideFiles files, ReadSideFiles(folder));
  Json json;
  DS_ASSIGN_OR_RETURN(std::vector<AddedToken> tokens, ReadModelTokens(files, &json));
  DS_ASSIGN_OR_RETURN(const JsonObject config,
                      JsonObject::From(files.config, files.config_name, ""));
  auto pipeline = ParseSentencePieceModel(bytes, &config, std::move(tokens));
  if (!pipeline.ok()) return pipeline.status().WithContext(ShortenPath(file));
  DS_ASSIGN_OR_RETURN(const JsonObject added, JsonObject::From(json, files.config_name, ""));
  DS_RETURN_IF_ERROR(CheckIds(added, pipeline->added));
  return Tokenizer(*std::move(pipeline));
}

// Returns true if a step of the pipeline is a ByteLevel that adds no blank before a text.
bool LacksPrefix(const Json& step) {
  if (!step.is_object()) return false;
  const Json steps = step.value("pretokenizers", Json::array());
  return (step.value("type", Json()) == "ByteLevel" &&
          step.value("add_prefix_space", Json(true)) == false) ||
         std::any_of(steps.begin(), steps.end(), LacksPrefix);
}

// Returns true if a step of the pipeline adds a blank before a text, as SentencePiece does.
bool WritesPrefix(const Json& step) {
  if (!step.is_object()) return false;
  const Json type = step.value("type", Json());
  if (type == "Prepend") return true;
  if (type == "Metaspace") return step.value("prepend_scheme", Json("always")) != "never";
  for (const char* key : {"pretokenizers", "normalizers"}) {
    const Json steps = step.value(key, Json::array());
    if (std::any_of(steps.begin(), steps.end(), WritesPrefix)) return true;
  }
  return false;
}

// transformers rebuilds the pipeline of these classes, depending on this key.
Status CheckLacksPrefix(const SideFiles& files, const Json& root) {
  DS_ASSIGN_OR_RETURN(const bool prefix, files.FlagOr("add_prefix_space", true));
  DS_ASSIGN_OR_RETURN(const std::string name, files.ClassName());
  const bool counts = !prefix && (name.starts_with("Llama") || name.starts_with("CodeLlama"));
  if (!counts || !root.is_object()) return OkStatus();
  if (!WritesPrefix(root.value("pre_tokenizer", Json())) &&
      !WritesPrefix(root.value("normalizer", Json()))) {
    return OkStatus();
  }
  return UnimplementedError(files.config_name +
                            ": add_prefix_space false, and tokenizer.json writes the blank: have "
                            "transformers save the folder again");
}

// transformers lets these keys override the pipeline of tokenizer.json, the second one for some
// classes.
Status CheckPipelineKeys(const SideFiles& files, const Json& root) {
  DS_RETURN_IF_ERROR(CheckLacksPrefix(files, root));
  constexpr std::string_view kPrefixClasses[] = {"GPT2", "Qwen2", "Cohere"};
  DS_ASSIGN_OR_RETURN(const bool splits, files.FlagOr("split_special_tokens", false));
  if (splits) {
    return UnimplementedError(files.config_name + ": split_special_tokens true is not built");
  }
  DS_ASSIGN_OR_RETURN(const bool prefix, files.FlagOr("add_prefix_space", false));
  DS_ASSIGN_OR_RETURN(const std::string name, files.ClassName());
  const bool counts =
      prefix && std::any_of(std::begin(kPrefixClasses), std::end(kPrefixClasses),
                            [&](std::string_view start) { return name.starts_with(start); });
  if (!counts || !root.is_object() || !LacksPrefix(root.value("pre_tokenizer", Json()))) {
    return OkStatus();
  }
  return UnimplementedError(files.config_name +
                            ": add_prefix_space true, and tokenizer.json's pre_tokenizer has it "
                            "false: have transformers save the folder again");
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
      DS_ASSIGN_OR_RETURN(const OldLayout layout, ReadTwoFiles(path));
      return MakeFromLayout(layout);
    }
    if (fs::exists(path / "tokenizer.model", error)) {
      return ReadSentencePieceFolder(path);
    }
    return NotFoundError(
        ShortenPath(path) +
        " has no tokenizer.json, no vocab.json with merges.txt and no tokenizer.model");
  }
  const bool is_folder = fs::is_directory(path, error);
  const fs::path file = is_folder ? path / "tokenizer.json" : path;
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxTokenizerBytes));
  DS_ASSIGN_OR_RETURN(Json json, ParseJsonFile(text, ShortenPath(file)));
  if (is_folder) {
    DS_ASSIGN_OR_RETURN(const SideFiles files, ReadSideFiles(path));
    DS_RETURN_IF_ERROR(CheckPipelineKeys(files, json));
    DS_RETURN_IF_ERROR(AddSideTokens(files, &json));
  }
  return MakeTokenizer(json, ShortenPath(file));
}

}  // namespace ds::tokenizer
