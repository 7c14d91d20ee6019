#pragma once

// Small text files of /proc and /sys.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ds::cli {

// Leaves out the newlines at the end; "" when the file cannot be read.
std::string ReadText(const std::filesystem::path& path);
std::vector<std::string> ReadLines(const std::filesystem::path& path);

// The text behind "`key` :" in the first line that begins with the key, without blanks around it;
// "" when there is none. `separator` is what stands between them.
std::string FindValue(const std::vector<std::string>& lines, std::string_view key,
                      char separator = ':');

// The whole of `text` up to its first blank as a number, or nothing.
std::optional<std::uint64_t> ParseLeadingNumber(std::string_view text);

std::vector<std::string> SplitAtBlanks(std::string_view text);

}  // namespace ds::cli
