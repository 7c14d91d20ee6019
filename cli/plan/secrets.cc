#include "cli/plan/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace ds::cli {
namespace {

constexpr std::array<std::string_view, 10> kSecretWords = {
    "TOKEN",      "KEY",         "APIKEY",     "SECRET", "PASSWORD",
    "PASSPHRASE", "CREDENTIALS", "CREDENTIAL", "PASSWD", "PAT"};

// The flags in front of a variable when they are glued to it.
constexpr std::array<std::string_view, 2> kExportFlags = {"--export=", "-x"};

}  // namespace

bool IsSecretName(std::string_view name) {
  std::string word;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    if (i < name.size() && name[i] != '_' && name[i] != '-') {
      word += static_cast<char>(std::toupper(static_cast<unsigned char>(name[i])));
      continue;
    }
    if (std::find(kSecretWords.begin(), kSecretWords.end(), word) != kSecretWords.end())
      return true;
    word.clear();
  }
  return false;
}

std::string RedactWord(const std::string& word) {
  std::size_t start = 0;
  for (const std::string_view flag : kExportFlags) {
    if (word.starts_with(flag)) {
      start = flag.size();
      break;
    }
  }
  const std::size_t equals = word.find('=', start);
  if (equals == std::string::npos) return word;
  if (!IsSecretName(std::string_view(word).substr(start, equals - start))) return word;
  return word.substr(0, equals + 1) + std::string(kRedacted);
}

}  // namespace ds::cli
