#pragma once

// Tells what is a secret among the words and variables of a command line, and shows it, never by
// its value. A secret is known by the name of its variable or flag, by a URL or a login that holds
// it, or by the shape of a well-known token.
//
// Pure; safe from any thread.

#include <string>
#include <string_view>
#include <vector>

namespace ds::cli {

inline constexpr std::string_view kRedacted = "<redacted>";

// True when a variable, flag or field of this name holds a secret: HF_TOKEN, --api-key, PGPASSWORD,
// AWS_SECRETKEY, clientSecret, ... What only speaks of tokens and keys does not: token_dtype,
// pad_token, sort_key, PASSWORD_FILE.
bool IsSecretName(std::string_view name);

// A text without its secrets: the values behind secret names ("NAME=VALUE", "--name VALUE",
// "name: VALUE"), the passwords of URLs and of "-u user:PASSWORD", tokens of known shapes but for
// their prefix ("hf_"). A word that begins with a secret's NAME= (-x and --export= may stand in
// front) loses all that follows.
std::string RedactText(std::string_view text);

// A command line word by word; the word behind a secret's flag is a secret, too.
std::vector<std::string> RedactWords(const std::vector<std::string>& words);

}  // namespace ds::cli
