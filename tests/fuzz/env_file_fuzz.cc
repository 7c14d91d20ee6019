// Feeds arbitrary bytes to the parser of env files. Beside not crashing, what it accepts must be
// something execve can carry, every name once, and must come out alike when it is written in
// quotes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/launch/environment.h"
#include "runtime/base/check.h"

namespace {

std::string Quoted(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\' || c == '$') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text + "\"";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto environment = ds::cli::ParseEnvFile(text, "f");
  if (!environment.ok()) {
    DS_CHECK(environment.status().message().starts_with("f:"));
    return 0;
  }
  std::string again;
  for (const auto& [name, value] : *environment) {
    DS_CHECK(!name.empty() && name.find('=') == std::string::npos);
    DS_CHECK((name + value).find('\0') == std::string::npos);
    DS_CHECK(std::count_if(environment->begin(), environment->end(),
                           [&wanted = name](const auto& each) { return each.first == wanted; }) ==
             1);
    // In front of `export` as a name of its own, the word would be taken for the keyword.
    again += "export " + name + "=" + Quoted(value) + "\n";
  }
  const auto reread = ds::cli::ParseEnvFile(again, "again");
  DS_CHECK(reread.ok() && *reread == *environment);
  return 0;
}
