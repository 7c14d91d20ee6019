#pragma once

// Hides values in the words and variables of a command line: every value of -x NAME=VALUE, and the
// value of a variable or flag whose name is secret. Nothing else is taken for a secret, so a secret
// inside of another word (a URL, a script) is shown. job.json is readable by its owner only.
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

// The words of a command line as stored in job.json. Hidden are the values of -x, VALUE in
// "NAME=VALUE" and "--name=VALUE", and the word after "--name", for a secret name. A command line
// copied from there is rejected, because its program would take kRedacted for the secret. If
// kRedacted hides nothing, it is an ordinary word.
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
