#pragma once

// SideFiles holds the small JSON files of a Hugging Face folder that name special tokens and add
// others: tokenizer_config.json, special_tokens_map.json and added_tokens.json. The precedence
// follows transformers 5: where tokenizer_config.json has added_tokens_decoder, the other two are
// not read; otherwise special_tokens_map.json overrides tokenizer_config.json.
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
  Json map = Json::object();     // special_tokens_map.json, empty if it is not read
  std::string map_name;
  Json later = Json::object();  // added_tokens.json, empty if it is not read
  std::string later_name;

  // Returns the tokenizer class; "" where no file names one.
  StatusOr<std::string> ClassName() const;
  StatusOr<bool> FlagOr(std::string_view key, bool otherwise) const;
  // Returns bos_token, eos_token and the others, as texts or objects, without null ones. `defaults`
  // fill in missing ones.
  Json NamedTokens(const Json& defaults) const;
};

StatusOr<SideFiles> ReadSideFiles(const std::filesystem::path& folder);

// Returns the content of a token given as a text or an object; "" for any other value.
std::string ContentOfToken(const Json& token);

// Adds the tokens of the side files to a tokenizer.json, `root`. Adds new tokens, and overrides
// flags of existing ones where the config has added_tokens_decoder.
Status AddSideTokens(const SideFiles& files, Json* root);

// Returns the equivalent "added_tokens" of a tokenizer.json. Tokens that the vocabulary lacks get
// ids in this order. `named` is the result of NamedTokens. `own` are the model's own special
// tokens, used where no list of additional ones replaces them.
StatusOr<Json> ListAddedTokens(const SideFiles& files, const Json& named, const Json& own);

}  // namespace ds::tokenizer
