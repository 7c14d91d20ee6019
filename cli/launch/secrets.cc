#include "cli/launch/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

namespace ds::cli {
namespace {

template <std::size_t N>
bool Contains(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A name is secret if it has one of these as a word, or at the end of a word.
constexpr std::array<std::string_view, 9> kSecretEndings = {
    "SECRET",      "PASSWORD",  "PASSWD",        "PASSPHRASE", "CREDENTIAL",
    "CREDENTIALS", "ACCESSKEY", "AUTHORIZATION", "SECRETKEY"};
// A name is also secret if it ends with one of these words,
constexpr std::array<std::string_view, 10> kLastWords = {
    "TOKEN", "KEY", "APIKEY", "PAT", "PASS", "PWD", "PW", "AUTH", "COOKIE", "SIGNATURE"};
constexpr std::array<std::string_view, 2> kLastEndings = {"TOKEN", "APIKEY"};
// unless it contains one of these.
constexpr std::array<std::string_view, 24> kHarmlessWords = {
    "PAD",    "EOS",   "BOS",   "UNK",    "SEP",  "CLS",   "MASK",    "SPECIAL",
    "START",  "END",   "IMAGE", "TEXT",   "SORT", "LABEL", "PRIMARY", "FOREIGN",
    "PUBLIC", "CACHE", "GROUP", "OUTPUT", "DATA", "INPUT", "TARGET",  "FEATURE"};
// Flags with a value "user:PASSWORD" (curl).
constexpr std::array<std::string_view, 3> kLoginFlags = {"-u", "--user", "--proxy-user"};
// Names that end with one of these contain the path of a secret.
constexpr std::array<std::string_view, 3> kPlaces = {"FILE", "PATH", "DIR"};

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool IsQuote(char c) { return c == '"' || c == '\''; }
bool IsNameChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

// Splits "aws_secret-key2" into AWS, SECRET, KEY; trailing numbers are dropped.
std::vector<std::string> WordsOf(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (c == '_' || c == '-' || c == '.') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  }
  while (!words.empty()) {
    while (!words.back().empty() && IsDigit(words.back().back())) words.back().pop_back();
    if (!words.back().empty()) break;
    words.pop_back();
  }
  return words;
}

template <std::size_t N>
bool EndsWithOneOf(std::string_view word, const std::array<std::string_view, N>& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return word.ends_with(ending); });
}

// True for "-v" or "--name...". A word like "-Xa1b2c3" may be a secret with a leading dash.
bool IsFlag(std::string_view word) {
  if (word.starts_with("--")) return word.size() == 2 || IsLetter(word[2]);
  return word == "-" || (word.size() == 2 && word[0] == '-' && IsLetter(word[1]));
}

// Returns the start of the password in "user:PASSWORD". 1000:1000 are a user id and a group id.
// RedactUrls handles URLs.
std::size_t FindPassword(std::string_view login) {
  const std::size_t colon = login.find(':');
  if (colon == std::string_view::npos || login.substr(colon).starts_with("://") ||
      colon + 1 == login.size() || login.find_first_not_of("0123456789:") == login.npos) {
    return std::string_view::npos;
  }
  return colon + 1;
}

// Finds values after secret names in a text.
class ValueScanner {
 public:
  explicit ValueScanner(std::string_view text) : text_(text) {}

  std::string Redact() {
    while (at_ < text_.size()) {
      if (!AtStartOfName()) {
        shown_ += text_[at_++];
        continue;
      }
      const std::size_t start = at_;
      while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
      const std::string_view name = text_.substr(start, at_ - start);
      shown_ += name;
      if (IsSecretName(name.substr(std::min(name.find_first_not_of('-'), name.size())))) {
        HideValue(start, name.starts_with('-'));
      } else if (Contains(kLoginFlags, name)) {
        HidePassword();
      }
    }
    return std::move(shown_);
  }

 private:
  bool AtStartOfName() const {
    return IsNameChar(text_[at_]) && (at_ == 0 || !IsNameChar(text_[at_ - 1]));
  }

  // Call after the name at `start` has been copied to the output.
  void HideValue(std::size_t start, bool is_flag) {
    const bool whole_word = IsFirst(start);
    std::size_t value = at_;
    if (value < text_.size() && IsQuote(text_[value])) ++value;  // "name": "value"
    const std::size_t separator = SkipBlanks(value);
    if (separator < text_.size() && (text_[separator] == '=' || text_[separator] == ':')) {
      if (text_.substr(separator).starts_with("://")) return;
      value = whole_word && text_[separator] == '=' ? separator + 1 : SkipBlanks(separator + 1);
    } else if (is_flag && separator > at_ && separator < text_.size() &&
               !IsFlag(
                   text_.substr(separator, text_.find_first_of(" \t\n", separator) - separator))) {
      value = separator;
    } else {
      return;
    }
    const std::size_t end =
        whole_word && text_[value - 1] == '=' ? text_.size() : EndOfValue(&value);
    if (end == value) return;
    shown_ += text_.substr(at_, value - at_);
    shown_ += kRedacted;
    at_ = end;
  }

  // Call after a flag with a login as its value has been copied to the output.
  void HidePassword() {
    const bool glued = at_ < text_.size() && text_[at_] == '=';
    std::size_t login = glued ? at_ + 1 : SkipBlanks(at_);
    if (login == at_) return;
    const std::size_t end = EndOfValue(&login);
    const std::size_t password = FindPassword(text_.substr(login, end - login));
    if (password == std::string_view::npos) return;
    shown_ += text_.substr(at_, login + password - at_);
    shown_ += kRedacted;
    at_ = end;
  }

  // True if only the prefixes allowed in an exported NAME=VALUE precede `start`.
  bool IsFirst(std::size_t start) const {
    const std::string_view before = text_.substr(0, start);
    return before.empty() || before == "--export=" || before == "-x";
  }

  std::size_t SkipBlanks(std::size_t at) const {
    while (at < text_.size() && IsSpace(text_[at])) ++at;
    return at;
  }

  // Returns the end of the value at `*value`, after moving it past an opening quote.
  std::size_t EndOfValue(std::size_t* value) const {
    if (*value < text_.size() && IsQuote(text_[*value])) {
      const char quote = text_[(*value)++];
      std::size_t end = *value;
      while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
      return std::min(end, text_.size());
    }
    std::size_t start = *value;
    for (const std::string_view scheme : {"Bearer ", "Basic ", "Token "}) {
      if (text_.substr(start).starts_with(scheme)) start += scheme.size();
    }
    return std::min(text_.find_first_of(" \t\n\"';&,}", start), text_.size());
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::string shown_;
};

// Redacts "scheme://user:PASSWORD@host", and "https://SECRET@host", because tokens may precede the
// @. With other schemes that is a user (ssh://) or a container (abfss://). A password may contain
// characters that end the authority of a URL. Unless a port stands in its position, it extends to
// the last @.
std::string RedactUrls(std::string text) {
  for (std::size_t at = text.find("://"); at != std::string::npos; at = text.find("://", at)) {
    const std::string_view scheme = std::string_view(text).substr(0, at);
    const bool is_web = scheme.ends_with("http") || scheme.ends_with("https");
    at += 3;
    const std::size_t blank = std::min(text.find_first_of(" \t\n\"'", at), text.size());
    const std::size_t colon = std::min(text.find(':', at), blank);
    std::size_t end = std::min(text.find_first_of("/?#", at), blank);
    const bool is_port =
        std::all_of(text.begin() + std::min(colon + 1, end), text.begin() + end, IsDigit);
    if (!is_port) end = std::max(end, text.find('@', end) < blank ? blank : end);
    const std::size_t host = std::string_view(text).substr(0, end).rfind('@');
    if (host == std::string::npos || host <= at || (colon >= host && !is_web)) continue;
    const std::size_t secret = colon < host ? colon + 1 : at;
    text.replace(secret, host - secret, kRedacted);
  }
  return text;
}

// Handles "-xNAME=...", which is one word to the scanner; it would take "-xNAME" for the name.
std::size_t LengthOfGluedExport(std::string_view text) {
  const bool glued = text.starts_with("-x") && text.size() > 2 && text[2] != '=';
  const std::size_t equals = text.find('=');
  return glued && equals != std::string_view::npos && IsSecretName(text.substr(2, equals - 2))
             ? equals + 1
             : 0;
}

bool IsSecretFlag(std::string_view word) {
  return word.starts_with('-') && word.find('=') == word.npos &&
         word.find_first_not_of('-') != word.npos &&
         IsSecretName(word.substr(word.find_first_not_of('-')));
}

enum class Alphabet { kAlphanumeric, kUpper, kHex, kUrl, kAny };

// The shape of a service's tokens, as in secret scanners (gitleaks, trufflehog): the service's
// prefix, then enough characters of its alphabet.
struct TokenShape {
  std::string_view prefix;
  Alphabet alphabet;
  std::size_t least;  // number of characters after the prefix
};

constexpr TokenShape kShapes[] = {
    {"hf_", Alphabet::kAlphanumeric, 16},       // Hugging Face
    {"api_org_", Alphabet::kAlphanumeric, 16},  // ... of an organization
    {"sk-", Alphabet::kUrl, 16},                // OpenAI, Anthropic and compatible services
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
    {"Bearer ", Alphabet::kUrl, 8},       // of HTTP
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

// Returns the length of a token of this shape at the start of `text`; 0 if there is none.
std::size_t TokenLength(std::string_view text, const TokenShape& shape) {
  if (!text.starts_with(shape.prefix)) return 0;
  const std::string_view after = text.substr(shape.prefix.size());
  const auto end =
      std::find_if_not(after.begin(), after.end(), [&](char c) { return IsOf(shape.alphabet, c); });
  const auto length = static_cast<std::size_t>(end - after.begin());
  return length >= shape.least ? shape.prefix.size() + length : 0;
}

// The token at the start of a text; length 0 if there is none.
struct AccessToken {
  std::string_view prefix;
  std::size_t length = 0;
};

AccessToken FindAccessToken(std::string_view text) {
  for (const TokenShape& shape : kShapes) {
    if (const std::size_t length = TokenLength(text, shape); length > 0) {
      return {shape.prefix, length};
    }
  }
  return {};
}

// Redacts such tokens in `text` and keeps their prefixes. The service is no secret, and the prefix
// marks a redacted token.
std::string RedactTokens(std::string_view text) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const bool starts = at == 0 || !IsOf(Alphabet::kAlphanumeric, text[at - 1]);
    const AccessToken token = starts ? FindAccessToken(text.substr(at)) : AccessToken();
    if (token.length > 0) {
      shown.append(token.prefix).append(kRedacted);
      at += token.length;
    } else {
      shown += text[at++];
    }
  }
  return shown;
}

}  // namespace

bool IsSecretName(std::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  if (words.empty() || (words.size() > 1 && Contains(kPlaces, words.back()))) return false;
  for (const std::string& word : words) {
    if (EndsWithOneOf(word, kSecretEndings)) return true;
  }
  if (words.size() == 1 && words[0].ends_with("PWD")) return false;  // the working directory
  if (words.size() == 1 && words[0] == "SIG") return true;           // of a URL of Azure
  const bool harmless = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return Contains(kHarmlessWords, word);
  });
  return !harmless &&
         (Contains(kLastWords, words.back()) || EndsWithOneOf(words.back(), kLastEndings));
}

std::string RedactText(std::string_view text) {
  if (const std::size_t length = LengthOfGluedExport(text); length > 0) {
    return std::string(text.substr(0, length)) + std::string(kRedacted);
  }
  return RedactTokens(ValueScanner(RedactUrls(std::string(text))).Redact());
}

std::vector<std::string> RedactWords(const std::vector<std::string>& words) {
  std::vector<std::string> shown;
  std::string_view flag;
  for (const std::string& word : words) {
    const std::size_t password = Contains(kLoginFlags, flag) ? FindPassword(word) : word.npos;
    if (IsSecretFlag(flag) && !IsFlag(word)) {
      shown.emplace_back(kRedacted);
    } else if (password != word.npos) {
      shown.push_back(word.substr(0, password) + std::string(kRedacted));
    } else {
      shown.push_back(RedactText(word));
    }
    flag = word;
  }
  return shown;
}

namespace {

// A marker that matches every token shape: it is redacted in the position of a secret, and kept
// elsewhere.
constexpr std::string_view kAnySecret = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

std::string& WordOf(const ValuePosition& value, std::vector<std::string>* words) {
  return words->at(words->size() - 1 - value.words_after);
}

std::string ReplaceAll(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

int CountOf(std::string_view what, std::string_view text) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; ++count) {
    at += what.size();
  }
  return count;
}

// Returns kRedacted, which is at `at`, with the text before it, back to a blank. If a blank
// precedes it directly, the previous word is included.
std::string ShowAround(const std::string& text, std::size_t at) {
  constexpr char kBlanks[] = " \t\n";
  std::size_t start = text.find_last_of(kBlanks, at) + 1;
  if (start == at && start > 1) start = text.find_last_of(kBlanks, start - 2) + 1;
  return text.substr(start, at + kRedacted.size() - start);
}

// Returns for each word whether it contains kRedacted in the position of a secret.
std::vector<bool> FindHidden(std::vector<std::string> words,
                             const std::vector<ValuePosition>& values) {
  std::vector<bool> hidden(words.size());
  for (const ValuePosition& value : values) {
    const bool is_mark =
        value.bytes == kRedacted.size() && WordOf(value, &words).ends_with(kRedacted);
    if (is_mark) hidden[words.size() - 1 - value.words_after] = true;
  }
  for (std::string& word : words) word = ReplaceAll(std::move(word), kRedacted, kAnySecret);
  const std::vector<std::string> shown = RedactWords(words);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (CountOf(kAnySecret, shown[i]) < CountOf(kAnySecret, words[i])) hidden[i] = true;
  }
  return hidden;
}

Status RefuseRedacted(const std::vector<std::string>& words,
                      const std::vector<ValuePosition>& values) {
  const std::vector<bool> hidden = FindHidden(words, values);
  std::string found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!hidden[i]) continue;
    const std::string shown = ShowAround(words[i], words[i].find(kRedacted));
    const bool after_flag = i > 0 && words[i - 1].starts_with('-') && words[i].starts_with(shown);
    found += (found.empty() ? "" : ", ") + (after_flag ? words[i - 1] + " " : "") + shown;
  }
  if (found.empty()) return OkStatus();
  return InvalidArgumentError(
      "this was copied from output in which dsrun hides secrets and other values: " + found +
      "; give the values themselves again (-x NAME takes the value of this shell)");
}

}  // namespace

RedactedWords HideSecrets(const std::vector<std::string>& words,
                          const std::vector<ValuePosition>& values) {
  std::vector<std::string> hidden = words;
  for (const ValuePosition& value : values) {
    std::string& word = WordOf(value, &hidden);
    word.replace(word.size() - value.bytes, value.bytes, kRedacted);
  }
  RedactedWords redacted{.words = RedactWords(hidden), .indices = {}};
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (redacted.words[i] != words[i]) redacted.indices.push_back(i);
  }
  return redacted;
}

StatusOr<RedactedWords> RedactCommandLine(const std::vector<std::string>& words,
                                          const std::vector<ValuePosition>& values) {
  DS_RETURN_IF_ERROR(RefuseRedacted(words, values));
  return HideSecrets(words, values);
}

}  // namespace ds::cli
