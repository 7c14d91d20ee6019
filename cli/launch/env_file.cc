#include "cli/launch/env_file.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cli/launch/blanks.h"
#include "runtime/base/files.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxEnvFileBytes = std::uint64_t{16} << 20;
constexpr std::string_view kExport = "export";

// Returns the character for \c in double quotes. A backslash before any other character is kept.
std::string Unescaped(char c) {
  switch (c) {
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case '"':
    case '\\':
    case '$':
      return {c};
    default:
      return {'\\', c};
  }
}

// Parses a value in quotes; `text` begins with one. Only a comment may follow the closing quote.
StatusOr<std::string> QuotedValue(std::string_view text) {
  const char quote = text.front();
  std::string value;
  std::size_t at = 1;
  for (; at < text.size() && text[at] != quote; ++at) {
    if (quote == '"' && text[at] == '\\' && at + 1 < text.size()) {
      value += Unescaped(text[++at]);
    } else {
      value += text[at];
    }
  }
  if (at == text.size()) {
    return InvalidArgumentError(std::string("the value's ") + quote + " is not closed");
  }
  const std::string_view rest = text.substr(at + 1);
  const std::string_view behind = Strip(rest);
  if (!behind.empty() && (behind.front() != '#' || behind.size() == rest.size())) {
    return InvalidArgumentError(std::string("text after the closing ") + quote +
                                "; quote the whole value");
  }
  return value;
}

std::string PlainValue(std::string_view text) {
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '#' && IsBlank(text[at - 1])) text = text.substr(0, at);
  }
  return std::string(Strip(text));
}

Status CheckName(std::string_view name) {
  if (name.empty()) return InvalidArgumentError("no name in front of '='");
  const bool odd = std::any_of(name.begin(), name.end(), [](char c) {
    return IsBlank(c) || c == '"' || c == '\'' || c == '$' || static_cast<unsigned char>(c) < 0x20;
  });
  if (odd) return InvalidArgumentError("the name in front of '=' holds a blank or a quote");
  return OkStatus();
}

// After `export`, a shell ends the value at the blank and exports the next word, too. DeepSpeed
// takes the full line and passes `export` to the remote shell.
Status RefuseWords() {
  return InvalidArgumentError(
      "a blank in the value behind `export`, at which a shell ends it: quote the whole value, or "
      "write one variable a line");
}

// A stripped line that is neither empty nor a comment.
StatusOr<std::pair<std::string, std::string>> ParseVariable(std::string_view line) {
  if (line.find('\0') != std::string_view::npos) return InvalidArgumentError("holds a NUL byte");
  const bool exports =
      line.starts_with(kExport) && line.size() > kExport.size() && IsBlank(line[kExport.size()]);
  if (exports) {
    line = StripFront(line.substr(kExport.size()));
  }
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) {
    return InvalidArgumentError("expected NAME=VALUE, found no '='");
  }
  const std::string_view name = Strip(line.substr(0, equals));
  DS_RETURN_IF_ERROR(CheckName(name));
  const std::string_view text = StripFront(line.substr(equals + 1));
  if (text.empty() || (text.front() != '"' && text.front() != '\'')) {
    std::string value = PlainValue(line.substr(equals + 1));
    if (exports && std::any_of(value.begin(), value.end(), IsBlank)) return RefuseWords();
    return std::pair(std::string(name), std::move(value));
  }
  DS_ASSIGN_OR_RETURN(std::string value, QuotedValue(text));
  return std::pair(std::string(name), std::move(value));
}

void Set(std::pair<std::string, std::string> variable, Environment* environment) {
  const auto same = std::find_if(environment->begin(), environment->end(),
                                 [&](const auto& each) { return each.first == variable.first; });
  if (same == environment->end()) {
    environment->push_back(std::move(variable));
  } else {
    same->second = std::move(variable.second);
  }
}

}  // namespace

StatusOr<Environment> ParseEnvFile(std::string_view text, std::string_view file_name) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  Environment environment;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Strip(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    auto variable = ParseVariable(line);
    if (!variable.ok()) {
      return variable.status().WithContext(std::string(file_name) + ":" + std::to_string(number));
    }
    Set(*std::move(variable), &environment);
  }
  return environment;
}

StatusOr<Environment> ReadEnvFile(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return ErrnoError(EISDIR, "env file " + path.string());
  const StatusOr<std::string> text = ReadFile(path, kMaxEnvFileBytes);
  if (!text.ok()) return text.status().WithContext("env file");
  return ParseEnvFile(*text, path.string());
}

std::vector<fs::path> FindUsualEnvFiles(const std::optional<std::string>& name,
                                        const fs::path& home, const fs::path& working_directory) {
  const fs::path file = name.value_or(".deepspeed_env");
  std::vector<fs::path> found;
  for (const fs::path& folder : {home, working_directory}) {
    const fs::path path = folder / file;
    std::error_code error;
    if (folder.empty() || file.empty() || !fs::is_regular_file(path, error)) continue;
    if (found.empty() || !fs::equivalent(found.back(), path, error)) found.push_back(path);
  }
  return found;
}

}  // namespace ds::cli
