#pragma once

// Tells which variables are secrets, by their names, and shows them, never by their value.
//
// Pure; safe from any thread.

#include <string>
#include <string_view>
#include <vector>

namespace ds::cli {

inline constexpr std::string_view kRedacted = "<redacted>";

// HF_TOKEN, WANDB_API_KEY, AWS_SECRET_ACCESS_KEY, DB_PASSWORD, ...: the name has a word TOKEN, KEY,
// SECRET, PASSWORD, PASSWD, PASSPHRASE or CREDENTIAL(S) between its underscores.
bool IsSecretName(std::string_view name);

// A word of a command line: "[-x|--export=]NAME=VALUE" without the value of a secret.
std::string RedactWord(const std::string& word);

}  // namespace ds::cli
