#include "runtime/tokenizer/file/side_files.h"

#include <algorithm>
#include <limits>
#include <set>

#include "runtime/base/files.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/path_exists.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestId = std::numeric_limits<std::uint32_t>::max();
constexpr const char* kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

StatusOr<Json> ReadSideFile(const fs::path& file) {
  DS_ASSIGN_OR_RETURN(const bool exists, PathExists(file));
  if (!exists) return Json::object();
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxTokenizerBytes));
  return ParseJsonFile(text, ShortenPath(file));
}

Status TokenError(const std::string& file, const std::string& key) {
  return InvalidArgumentError(file + ": " + key +
                              " must be a token: a text, or an object with its content, in which "
                              "\"special\" is true or false");
}

bool IsToken(const Json& token) {
  if (ContentOfToken(token).empty()) return false;
  return !token.is_object() || !token.contains("special") || token["special"].is_boolean();
}

// Makes an object of "added_tokens" from a token. A token given as a text is a special token.
Json MakeToken(const Json& token) {
  if (token.is_string()) return {{"content", token}, {"special", true}, {"normalized", false}};
  Json made = token;
  made.erase("__type");
  return made;
}

Json MakeSpecial(const Json& token) {
  Json made = MakeToken(token);
  made["special"] = true;
  return made;
}

// A named token is special; its other flags are kept. A value that is not a token is kept, and is
// rejected later with its position in the file.
void MarkSpecial(Json* token) {
  if (!token->is_object() || !IsToken(*token)) return;
  if (!token->contains("normalized")) (*token)["normalized"] = !token->value("special", false);
  (*token)["special"] = true;
}

// Returns the tokens of added_tokens_decoder, in the order of their ids.
StatusOr<std::map<std::uint32_t, Json>> ReadDecoder(const SideFiles& files) {
  std::map<std::uint32_t, Json> by_id;
  for (const auto& [key, token] : files.config["added_tokens_decoder"].items()) {
    const auto id = ParseNumber<std::uint32_t>(key);
    if (!id || !token.is_object() || !IsToken(token)) {
      return TokenError(files.config_name, "added_tokens_decoder." + key);
    }
    by_id[*id] = MakeToken(token);
  }
  return by_id;
}

// Returns the tokens of added_tokens.json; the named ones are special.
StatusOr<std::map<std::uint32_t, Json>> ReadLater(const SideFiles& files,
                                                  const std::set<std::string>& special) {
  std::map<std::uint32_t, Json> by_id;
  for (const auto& [content, id] : files.later.items()) {
    if (content.empty() || !id.is_number_unsigned() || id.get<std::uint64_t>() > kLargestId) {
      return InvalidArgumentError(files.later_name + ": '" + content +
                                  "' must have an id, a whole number from 0 to " +
                                  std::to_string(kLargestId));
    }
    const bool is_special = special.contains(content);
    by_id[id.get<std::uint32_t>()] = {
        {"content", content}, {"special", is_special}, {"normalized", !is_special}};
  }
  return by_id;
}

bool HasDecoder(const Json& config) {
  const auto found = config.find("added_tokens_decoder");
  return found != config.end() && found->is_object();
}

// Returns the config's list of tokens in addition to the named ones; empty without one.
StatusOr<Json> ReadExtra(const SideFiles& files) {
  Json list = Json::array();
  for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
    const auto found = files.config.find(key);
    if (found == files.config.end() || found->is_null() || found->empty()) continue;
    if (!found->is_array() && !found->is_object()) {
      return InvalidArgumentError(files.config_name + ": " + key + " must be a list of tokens");
    }
    for (const Json& token : *found) {
      if (!IsToken(token)) return TokenError(files.config_name, key);
      list.push_back(token);
    }
    break;
  }
  return list;
}

StatusOr<Json> ReadExtraOfMap(const SideFiles& files) {
  Json list = Json::array();
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto found = files.map.find(key);
    if (found == files.map.end() || !found->is_array()) continue;
    for (const Json& token : *found) {
      if (!IsToken(token)) return TokenError(files.map_name, key);
      list.push_back(token.is_object() ? MakeSpecial(token) : token);
    }
  }
  return list;
}

// Returns tokens with names of the model's own ("image_token"), which are special.
Json ListOwnNames(const Json& config) {
  Json list = Json::array();
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token") || !value.is_string()) continue;
    if (std::find(std::begin(kNames), std::end(kNames), key) == std::end(kNames)) {
      list.push_back(value);
    }
  }
  return list;
}

}  // namespace

std::string ContentOfToken(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (!token.is_object()) return "";
  const auto content = token.find("content");
  return content != token.end() && content->is_string() ? content->get<std::string>() : "";
}

StatusOr<std::string> SideFiles::ClassName() const {
  DS_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::From(config, config_name, ""));
  return root.TextOr("tokenizer_class", "");
}

StatusOr<bool> SideFiles::FlagOr(std::string_view key, bool otherwise) const {
  DS_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::From(config, config_name, ""));
  return root.FlagOr(key, otherwise);
}

Json SideFiles::NamedTokens(const Json& defaults) const {
  Json named = Json::object();
  for (const char* name : kNames) {
    const auto in_map = map.find(name), in_config = config.find(name), own = defaults.find(name);
    if (in_map != map.end()) {
      named[name] = in_map->is_object() ? MakeSpecial(*in_map) : *in_map;
    } else if (in_config != config.end()) {
      named[name] = *in_config;
    } else if (own != defaults.end()) {
      named[name] = *own;
    }
    if (named.contains(name) && ContentOfToken(named[name]).empty()) named.erase(name);
  }
  return named;
}

StatusOr<SideFiles> ReadSideFiles(const fs::path& folder) {
  SideFiles files{.config_name = ShortenPath(folder / "tokenizer_config.json"),
                  .map_name = ShortenPath(folder / "special_tokens_map.json"),
                  .later_name = ShortenPath(folder / "added_tokens.json")};
  DS_ASSIGN_OR_RETURN(files.config, ReadSideFile(folder / "tokenizer_config.json"));
  if (HasDecoder(files.config)) return files;
  DS_ASSIGN_OR_RETURN(files.map, ReadSideFile(folder / "special_tokens_map.json"));
  DS_ASSIGN_OR_RETURN(files.later, ReadSideFile(folder / "added_tokens.json"));
  return files;
}

StatusOr<Json> ListAddedTokens(const SideFiles& files, const Json& named, const Json& own) {
  for (const auto& [name, token] : named.items()) {
    // Tokens of special_tokens_map.json are special, regardless of their flag.
    if (!IsToken(token)) return TokenError(files.config_name, name);
  }
  DS_ASSIGN_OR_RETURN(Json extra, ReadExtra(files));
  std::set<std::string> special;
  for (const Json& token : named) special.insert(ContentOfToken(token));
  std::set<std::string> special_later = special;
  for (const Json& token : extra) special_later.insert(ContentOfToken(token));
  DS_ASSIGN_OR_RETURN(const auto by_id, HasDecoder(files.config) ? ReadDecoder(files)
                                                                 : ReadLater(files, special_later));
  if (extra.empty()) extra = own;
  if (extra.empty()) {
    DS_ASSIGN_OR_RETURN(extra, ReadExtraOfMap(files));
  }
  Json added = Json::array();
  std::set<std::string> with_ids;
  for (const auto& [id, token] : by_id) {
    added.push_back(token);
    added.back()["id"] = id;
    if (special.contains(ContentOfToken(token))) MarkSpecial(&added.back());
    with_ids.insert(ContentOfToken(token));
  }
  for (const char* name : kNames) {
    const auto found = named.find(name);
    if (found == named.end() || with_ids.contains(ContentOfToken(*found))) continue;
    added.push_back(MakeToken(*found));
    MarkSpecial(&added.back());
  }
  for (const Json& list : {ListOwnNames(files.config), extra}) {
    for (const Json& token : list) {
      if (!with_ids.contains(ContentOfToken(token))) added.push_back(MakeToken(token));
    }
  }
  return added;
}

Status AddSideTokens(const SideFiles& files, Json* root) {
  const Json named = files.NamedTokens(Json::object());
  DS_ASSIGN_OR_RETURN(const Json side, ListAddedTokens(files, named, Json::array()));
  Json& added = (*root)["added_tokens"];
  if (added.is_null()) added = Json::array();
  if (!added.is_array()) return OkStatus();  // rejected later, by its name
  std::set<std::string> special, own;
  for (const Json& token : named) special.insert(ContentOfToken(token));
  for (Json& token : added) {
    own.insert(ContentOfToken(token));
    if (special.contains(ContentOfToken(token))) MarkSpecial(&token);
  }
  for (const Json& token : side) {
    const bool is_own = own.contains(ContentOfToken(token));
    if (is_own && !HasDecoder(files.config)) continue;
    added.push_back(token);
    if (is_own) added.back().erase("id");
  }
  return OkStatus();
}

}  // namespace ds::tokenizer
