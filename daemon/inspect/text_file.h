#pragma once

// Readers for small text files of /proc and /sys.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ds::daemon {

// Returns the text without trailing newlines; "" if the file cannot be read.
std::string ReadText(const std::filesystem::path& path);
std::vector<std::string> ReadLines(const std::filesystem::path& path);

// Returns the text after "`key` :" in the first line that begins with the key, without surrounding
// blanks; "" if there is none. `separator` replaces the ':'.
std::string FindValue(const std::vector<std::string>& lines, std::string_view key,
                      char separator = ':');

// Parses all of `text` before its first blank as a number. Returns nothing if it is no number.
std::optional<std::uint64_t> ParseLeadingNumber(std::string_view text);

std::vector<std::string> SplitAtBlanks(std::string_view text);

}  // namespace ds::daemon
