#include "cli/plan/token_shapes.h"

#include <algorithm>
#include <cctype>
#include <span>

namespace ds::cli {
namespace {

enum class Alphabet { kAlphanumeric, kUpper, kHex, kUrl, kAny };

struct Shape {
  std::string_view prefix;
  Alphabet alphabet;
  std::size_t least;  // characters behind the prefix
};

constexpr Shape kShapes[] = {
    {"hf_", Alphabet::kAlphanumeric, 16},       // Hugging Face
    {"api_org_", Alphabet::kAlphanumeric, 16},  // ... of an organization
    {"sk-", Alphabet::kUrl, 16},                // OpenAI, Anthropic and who copies them
    {"sk_live_", Alphabet::kAlphanumeric, 16},  // Stripe
    {"rk_live_", Alphabet::kAlphanumeric, 16},
    {"ghp_", Alphabet::kAlphanumeric, 20},  // GitHub
    {"gho_", Alphabet::kAlphanumeric, 20},
    {"ghu_", Alphabet::kAlphanumeric, 20},
    {"ghs_", Alphabet::kAlphanumeric, 20},
    {"ghr_", Alphabet::kAlphanumeric, 20},
    {"github_pat_", Alphabet::kUrl, 20},
    {"glpat-", Alphabet::kUrl, 16},  // GitLab
    {"AKIA", Alphabet::kUpper, 16},  // AWS
    {"ASIA", Alphabet::kUpper, 16},
    {"AIza", Alphabet::kUrl, 30},  // Google
    {"ya29.", Alphabet::kUrl, 20},
    {"xoxb-", Alphabet::kUrl, 10},  // Slack
    {"xoxp-", Alphabet::kUrl, 10},
    {"xapp-", Alphabet::kUrl, 10},
    {"nvapi-", Alphabet::kUrl, 20},         // NVIDIA
    {"r8_", Alphabet::kAlphanumeric, 30},   // Replicate
    {"npm_", Alphabet::kAlphanumeric, 30},  // package registries
    {"pypi-", Alphabet::kUrl, 30},
    {"dckr_pat_", Alphabet::kUrl, 20},
    {"dop_v1_", Alphabet::kHex, 40},  // DigitalOcean
    {"dapi", Alphabet::kHex, 32},     // Databricks
    {"SG.", Alphabet::kUrl, 30},      // SendGrid
    {"eyJ", Alphabet::kUrl, 40},      // JSON Web Tokens
    {"AGE-SECRET-KEY-1", Alphabet::kUpper, 30},
    {"-----BEGIN ", Alphabet::kAny, 16},  // private keys in PEM
};

bool IsOf(Alphabet alphabet, char c) {
  const auto byte = static_cast<unsigned char>(c);
  switch (alphabet) {
    case Alphabet::kAlphanumeric:
      return std::isalnum(byte) != 0;
    case Alphabet::kUpper:
      return std::isupper(byte) != 0 || std::isdigit(byte) != 0;
    case Alphabet::kHex:
      return std::isxdigit(byte) != 0;
    case Alphabet::kUrl:
      return std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.';
    case Alphabet::kAny:
      return true;
  }
  return false;
}

// Counts the characters at the start of `text` that are a token of this shape; 0 when it is none.
std::size_t TokenLength(std::string_view text, const Shape& shape) {
  if (!text.starts_with(shape.prefix)) return 0;
  const std::string_view behind = text.substr(shape.prefix.size());
  const auto end = std::find_if_not(behind.begin(), behind.end(),
                                    [&](char c) { return IsOf(shape.alphabet, c); });
  const auto length = static_cast<std::size_t>(end - behind.begin());
  return length >= shape.least ? shape.prefix.size() + length : 0;
}

std::size_t TokenLength(std::string_view text) {
  for (const Shape& shape : kShapes) {
    if (const std::size_t length = TokenLength(text, shape); length > 0) return length;
  }
  return 0;
}

}  // namespace

std::string RedactTokens(std::string_view text, std::string_view instead) {
  constexpr Shape kBearer{"Bearer ", Alphabet::kUrl, 8};
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const bool starts = at == 0 || !IsOf(Alphabet::kAlphanumeric, text[at - 1]);
    const std::string_view rest = text.substr(at);
    if (const std::size_t length = starts ? TokenLength(rest) : 0; length > 0) {
      shown += instead;
      at += length;
    } else if (const std::size_t bearer = starts ? TokenLength(rest, kBearer) : 0; bearer > 0) {
      shown.append(kBearer.prefix).append(instead);
      at += bearer;
    } else {
      shown += text[at++];
    }
  }
  return shown;
}

}  // namespace ds::cli
