#pragma once

// Tokens that tell by their shape whose they are, as the rules of secret scanners (gitleaks,
// trufflehog) know them: a prefix of the service's own and enough characters of its alphabet.
//
// Pure; safe from any thread.

#include <string>
#include <string_view>

namespace ds::cli {

// `text` with `instead` in the place of every such token; of "Bearer TOKEN", of the token.
std::string RedactTokens(std::string_view text, std::string_view instead);

}  // namespace ds::cli
