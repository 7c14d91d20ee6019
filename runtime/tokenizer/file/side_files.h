#pragma once

// SideFiles: the small JSON files of a Hugging Face folder that name special tokens and add others:
// tokenizer_config.json, special_tokens_map.json and added_tokens.json, with the precedence of
// transformers 5: where tokenizer_config.json has added_tokens_decoder, the other two are not read;
// else special_tokens_map.json goes before tokenizer_config.json.
//
// Errors name the file and the key.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {

struct SideFiles {
  Json config = Json::object();  // tokenizer_config.json
  std::string config_name;       // for errors
  Json map = Json::object();     // special_tokens_map.json, empty where it is not read
  std::string map_name;
  Json later = Json::object();  // added_tokens.json, the same
  std::string later_name;

  // "" where no file names one.
  StatusOr<std::string> ClassName() const;
  StatusOr<bool> FlagOr(std::string_view key, bool otherwise) const;
  // bos_token, eos_token and the others, as texts or objects; null ones are left out. `defaults`
  // fill in.
  Json NamedTokens(const Json& defaults) const;
};

StatusOr<SideFiles> ReadSideFiles(const std::filesystem::path& folder);

// The content of a token that is a text or an object; "" of anything else.
std::string ContentOfToken(const Json& token);

// Adds the tokens that the files name to those of a tokenizer.json, `root`: new ones, and other
// flags of its own where the config has added_tokens_decoder.
Status AddSideTokens(const SideFiles& files, Json* root);

// The "added_tokens" of a tokenizer.json that the files mean, in the order in which those that the
// vocabulary lacks get ids. `named` is NamedTokens'; `own` are the model's own special tokens,
// where no list of additional ones takes their place.
StatusOr<Json> ListAddedTokens(const SideFiles& files, const Json& named, const Json& own);

}  // namespace ds::tokenizer
