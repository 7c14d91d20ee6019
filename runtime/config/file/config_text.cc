#include "runtime/config/file/config_text.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "runtime/base/files.h"

namespace ds::config {
namespace {

// Returns the six bits of a character of either base64 alphabet.
std::optional<std::uint32_t> SixBits(char c) {
  if (c == '-') c = '+';
  if (c == '_') c = '/';
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::size_t value = kAlphabet.find(c);
  if (value == std::string_view::npos) return std::nullopt;
  return static_cast<std::uint32_t>(value);
}

std::optional<std::string> FromBase64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  std::string bytes;
  std::uint32_t bits = 0;
  int pending = 0;
  for (const char c : text) {
    const std::optional<std::uint32_t> six = SixBits(c);
    if (!six) return std::nullopt;
    bits = (bits << 6) | *six;
    pending += 6;
    if (pending < 8) continue;
    pending -= 8;
    bytes += static_cast<char>(bits >> pending);
    bits &= (1U << pending) - 1;
  }
  return bytes;
}

}  // namespace

StatusOr<ConfigText> ReadConfigText(const std::string& argument) {
  std::error_code ignored;
  if (!std::filesystem::exists(argument, ignored)) {
    std::optional<std::string> text = FromBase64(argument);
    const std::size_t first = text ? text->find_first_not_of(" \t\r\n") : std::string::npos;
    if (first != std::string::npos && (*text)[first] == '{') {
      return ConfigText{*std::move(text), "the base64 config"};
    }
  }
  DS_ASSIGN_OR_RETURN(std::string text, ReadFile(argument, kMaxConfigBytes));
  return ConfigText{std::move(text), argument};
}

}  // namespace ds::config
