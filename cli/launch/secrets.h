#pragma once

// Finds and redacts secrets in the words and variables of a command line. A secret is recognized by
// the name of its variable or flag, by an enclosing URL or login, or by the shape of a well-known
// token.
//
// Pure; safe from any thread.

#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "runtime/base/status.h"

namespace ds::cli {

inline constexpr std::string_view kRedacted = "<redacted>";

// Returns true if a variable, flag or field of this name holds a secret: HF_TOKEN, --api-key,
// PGPASSWORD, AWS_SECRETKEY, clientSecret, ... Names that only refer to tokens and keys are not
// secret: token_dtype, pad_token, sort_key, PASSWORD_FILE.
bool IsSecretName(std::string_view name);

// Returns `text` without its secrets: values after secret names ("NAME=VALUE", "--name VALUE",
// "name: VALUE"), passwords of URLs and of "-u user:PASSWORD", and tokens of known shapes except
// their prefix ("hf_"). In a word that begins with a secret's NAME= (optionally after -x or
// --export=), everything after the '=' is redacted.
std::string RedactText(std::string_view text);

// Redacts a command line word by word. The word after a secret's flag is also a secret.
std::vector<std::string> RedactWords(const std::vector<std::string>& words);

// The words of a command line as stored in job.json, without secrets and without any
// value of -x. A command line copied from there is rejected, because its program would take
// kRedacted for the secret. If kRedacted hides nothing, it is an ordinary word.
struct RedactedWords {
  std::vector<std::string> words;
  std::vector<std::size_t> indices;  // indices of the changed words
};

// `values` locates the values of -x.
RedactedWords HideSecrets(const std::vector<std::string>& words,
                          const std::vector<ValuePosition>& values = {});

// Does the same for a command line that the user has typed. Fails if kRedacted stands in a position
// that HideSecrets would redact, and names each one.
StatusOr<RedactedWords> RedactCommandLine(const std::vector<std::string>& words,
                                          const std::vector<ValuePosition>& values);

}  // namespace ds::cli
