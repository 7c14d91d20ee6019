#include "cli/launch/hostfile.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include "cli/launch/blanks.h"
#include "cli/launch/foreign_hostfile.h"
#include "runtime/base/files.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

constexpr std::uint64_t kMaxHostfileBytes = std::uint64_t{16} << 20;
constexpr std::string_view kSlots = "slots=";
constexpr int kMaxSshPort = 65535;
constexpr int kMostHosts = 65536;  // per line

// Shortens a text that is too long for a message.
std::string TruncateForMessage(std::string_view text) {
  constexpr std::size_t kMost = 80;
  return std::string(text.substr(0, kMost)) + (text.size() > kMost ? "..." : "");
}

// Removes and returns the next key of `text`: a word, or key="..." without its quotes.
StatusOr<std::string> TakeKey(std::string_view* text) {
  constexpr std::string_view kOpen = "=\"";
  const std::size_t quote = text->find('=');  // the first one; later ones belong to the value
  const std::size_t blank = std::find_if(text->begin(), text->end(), IsBlank) - text->begin();
  if (quote > blank || text->substr(quote, kOpen.size()) != kOpen) {
    return std::string(TakeWord(text));
  }
  const std::size_t value = quote + kOpen.size();
  const std::size_t end = text->find('"', value);
  if (end == std::string_view::npos) {
    return InvalidArgumentError("the '\"' after '" + std::string(text->substr(0, quote)) +
                                "=' is never closed");
  }
  if (end + 1 < text->size() && !IsBlank((*text)[end + 1])) {
    return InvalidArgumentError("text right after the closing '\"' of '" +
                                std::string(text->substr(0, quote)) + "'");
  }
  std::string key(text->substr(0, quote + 1));
  key += text->substr(value, end - value);
  *text = Strip(text->substr(end + 1));
  return key;
}

// Returns the number if `digits` is one of at most `max`.
std::optional<int> NumberUpTo(int max, std::string_view digits) {
  const std::optional<int> value = ParseNumber<int>(digits);
  if (!value.has_value() || *value > max || digits.front() == '-') return std::nullopt;
  return value;
}

std::vector<std::string> SplitAtCommas(std::string_view text) {
  const std::vector<std::string_view> parts = SplitAt(',', text);
  return {parts.begin(), parts.end()};
}

// True for a number or a driver name (GPU-..., MIG-...), which starts with a letter.
bool IsDevice(const std::string& device) {
  if (NumberUpTo(kMaxSlotsPerHost, device).has_value()) return true;
  return !device.empty() && std::isalpha(static_cast<unsigned char>(device.front())) != 0;
}

Status CheckDevices(const std::string& list, int slots) {
  const std::vector<std::string> devices = SplitAtCommas(list);
  std::set<std::string> seen;
  for (const std::string& device : devices) {
    if (!IsDevice(device)) {
      return InvalidArgumentError("gpus=" + list + ": '" + device +
                                  "' is neither a device's number nor its name");
    }
    if (!seen.insert(device).second) {
      return InvalidArgumentError("gpus=" + list + ": '" + device + "' is named twice");
    }
  }
  if (static_cast<int>(devices.size()) == slots) return OkStatus();
  return InvalidArgumentError("gpus=" + list + " names " + std::to_string(devices.size()) +
                              " devices for " + std::to_string(slots) + " slots");
}

// Fingerprints are 32 bytes in base64 without padding, as printed by ssh-keygen -l.
Status CheckFingerprints(const std::string& list) {
  constexpr std::string_view kHash = "SHA256:";
  constexpr std::size_t kDigits = 43;
  for (const std::string& fingerprint : SplitAtCommas(list)) {
    const std::string_view digits =
        std::string_view(fingerprint).substr(std::min(kHash.size(), fingerprint.size()));
    const bool good =
        fingerprint.starts_with(kHash) && digits.size() == kDigits &&
        std::all_of(digits.begin(), digits.end(), [](char c) {
          return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '/';
        });
    if (!good) {
      return InvalidArgumentError("hostkey=" + list + ": '" + fingerprint +
                                  "' is not SHA256: and 43 digits of base64, as 'ssh-keygen -l' "
                                  "on the host shows them");
    }
  }
  return OkStatus();
}

// Open MPI's limit for oversubscribed hosts. dsrun never oversubscribes.
Status CheckMaxSlots(const std::string& key, const std::string& value, int slots) {
  const std::optional<int> most = ParseNumber<int>(value);
  if (most.has_value() && *most >= slots) return OkStatus();
  return InvalidArgumentError(
      key + "=" + value + ": expected a whole number of at least slots=" + std::to_string(slots));
}

// Adds one word after slots=N: "key=value" or "spare".
Status AddKey(std::string_view word, HostEntry* entry) {
  const std::vector<std::string> known = {"port",    "user", "identity", "workdir", "exec",
                                          "address", "gpus", "hostkey",  "spare"};
  const std::size_t equals = word.find('=');
  const std::string key(word.substr(0, equals));
  if (key == "slots") return InvalidArgumentError("'slots' is given twice");
  const std::string value(equals == std::string_view::npos ? "" : word.substr(equals + 1));
  if (IsMaxSlots(key)) return CheckMaxSlots(key, value, entry->slots);
  if (std::find(known.begin(), known.end(), key) == known.end()) {
    return InvalidArgumentError("unknown key '" + TruncateForMessage(key) +
                                "' after slots=" + std::to_string(entry->slots) +
                                DidYouMean(key, known) + " (a comment starts with '#')");
  }
  if ((key == "spare") != (equals == std::string_view::npos)) {
    return InvalidArgumentError(key == "spare" ? "'spare' takes no value"
                                               : "'" + key + "' needs a value: " + key + "=...");
  }
  if (key != "spare" && value.empty()) return InvalidArgumentError("'" + key + "=' has no value");
  if (key == "port" && NumberUpTo(kMaxSshPort, value).value_or(0) == 0) {
    return InvalidArgumentError("port=" + value + ": expected 1 to 65535");
  }
  if (key == "gpus") DS_RETURN_IF_ERROR(CheckDevices(value, entry->slots));
  if (key == "hostkey") DS_RETURN_IF_ERROR(CheckFingerprints(value));
  if (!entry->keys.emplace(key, value).second) {
    return InvalidArgumentError("'" + key + "' is given twice");
  }
  return OkStatus();
}

bool HasControlCharacter(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && !IsBlank(c)) || c == 0x7F;
  });
}

// True for a line with only a host name, apart from a comment. `line` is stripped and neither empty
// nor a comment.
bool IsBare(std::string_view line) {
  TakeWord(&line);
  return line.empty() || line.front() == '#';
}

// Parses a stripped line that is neither empty nor a comment.
StatusOr<HostEntry> ParseHost(std::string_view line) {
  if (HasControlCharacter(line)) return InvalidArgumentError("holds a control character");
  std::string_view rest = line;
  HostEntry entry{.name = std::string(TakeWord(&rest))};
  const std::string_view slots = TakeWord(&rest);
  if (!slots.starts_with(kSlots)) {
    const std::string translation = TranslateHostLine(line);
    return InvalidArgumentError("expected 'HOST slots=N', found '" + TruncateForMessage(line) +
                                "'" + (translation.empty() ? "" : "; " + translation));
  }
  const std::optional<int> count = NumberUpTo(kMaxSlotsPerHost, slots.substr(kSlots.size()));
  if (!count.has_value()) {
    return InvalidArgumentError(TruncateForMessage(slots) + ": expected a whole number from 0 to " +
                                std::to_string(kMaxSlotsPerHost));
  }
  entry.slots = *count;
  while (!rest.empty() && rest.front() != '#') {
    DS_ASSIGN_OR_RETURN(const std::string key, TakeKey(&rest));
    DS_RETURN_IF_ERROR(AddKey(key, &entry));
  }
  return entry;
}

// Removes and returns the next line of `text`, without its newline.
std::string_view TakeLine(std::string_view* text) {
  const std::size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return line;
}

// A stripped line with a host.
struct HostLine {
  std::string_view text;
  int number = 0;          // 1-based
  std::size_t indent = 0;  // bytes before the text
};

// Invisible characters or odd blanks that editors, mails and web pages insert.
struct OddBlank {
  std::string_view bytes;
  const char* name;
  const char* advice;
};
constexpr OddBlank kOddBlanks[] = {
    {"\xC2\xA0", "a no-break space (U+00A0)", "replace it with a blank"},
    {"\xE2\x80\x87", "a figure space (U+2007)", "replace it with a blank"},
    {"\xE2\x80\xAF", "a narrow no-break space (U+202F)", "replace it with a blank"},
    {"\xE3\x80\x80", "an ideographic space (U+3000)", "replace it with a blank"},
    {"\xE2\x80\x8B", "a zero-width space (U+200B)", "remove it"},
    {kByteOrderMark, "a byte-order mark (U+FEFF) inside of the file", "remove it"}};

// Returns the line before its comment or its first quote; any character may follow a quote.
std::string_view PlainPart(std::string_view line) {
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '"' || (line[at] == '#' && (at == 0 || IsBlank(line[at - 1])))) {
      return line.substr(0, at);
    }
  }
  return line;
}

// The error names the column (in characters) and the character.
Status RefuseOddBlanks(const HostLine& line) {
  const std::string_view text = PlainPart(line.text);
  for (const OddBlank& odd : kOddBlanks) {
    const std::size_t at = text.find(odd.bytes);
    if (at == std::string_view::npos) continue;
    const auto inside = std::count_if(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at),
                                      [](char c) { return (c & 0xC0) == 0x80; });
    const std::size_t column = line.indent + at - static_cast<std::size_t>(inside) + 1;
    return InvalidArgumentError("column " + std::to_string(column) + ": " + odd.name +
                                ", which no host or key has: " + odd.advice);
  }
  return OkStatus();
}

std::vector<HostLine> FindHostLines(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<HostLine> lines;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view full_line = TakeLine(&text), line = Strip(full_line);
    if (line.empty() || line.front() == '#') continue;
    lines.push_back({line, number, static_cast<std::size_t>(line.data() - full_line.data())});
  }
  return lines;
}

// Reads a file of bare hosts, at least one repeated, as one slot per line, the format of PBS and
// LSF. Returns nothing for any other file.
std::optional<std::vector<HostEntry>> CountLines(const std::vector<HostLine>& lines) {
  std::vector<HostEntry> hosts;
  std::map<std::string, std::size_t> indices;
  for (const HostLine& line : lines) {
    if (!IsBare(line.text) || HasControlCharacter(line.text)) return std::nullopt;
    std::string_view rest = line.text;
    const std::string name(TakeWord(&rest));
    const auto [at, fresh] = indices.emplace(name, hosts.size());
    if (fresh) hosts.push_back({.name = name, .line = line.number});
    if (++hosts[at->second].slots > kMaxSlotsPerHost) return std::nullopt;
  }
  if (hosts.size() == lines.size()) return std::nullopt;
  return hosts;
}

// Ranges require slots=N, because their lines could count the slots of each host or of all.
Status CheckCounted(const HostEntry& host) {
  DS_RETURN_IF_ERROR(ExpandHostName(host.name, kMostHosts).status());
  if (host.name.find('[') == std::string::npos) return OkStatus();
  return InvalidArgumentError("the range '" + TruncateForMessage(host.name) +
                              "' is listed twice without slots=N: write one line, '" +
                              TruncateForMessage(host.name) + " slots=N'");
}

// Returns the entries of one line: several for a range of names.
StatusOr<std::vector<HostEntry>> ParseLine(const HostLine& line) {
  DS_ASSIGN_OR_RETURN(HostEntry entry, ParseHost(line.text));
  entry.line = line.number;
  DS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ExpandHostName(entry.name, kMostHosts));
  for (const char* key : {"address", "hostkey", "exec"}) {
    if (names.size() > 1 && entry.keys.contains(key)) {
      return InvalidArgumentError(std::string(key) + "= is for one host: write one line for each");
    }
  }
  std::vector<HostEntry> entries(names.size(), entry);
  for (std::size_t i = 0; i < names.size(); ++i) entries[i].name = names[i];
  return entries;
}

}  // namespace

std::vector<std::string> ListDevices(const HostEntry& entry) {
  const auto listed = entry.keys.find("gpus");
  return listed == entry.keys.end() ? std::vector<std::string>() : SplitAtCommas(listed->second);
}

std::vector<std::string> ListHostKeys(const HostEntry& entry) {
  const auto listed = entry.keys.find("hostkey");
  return listed == entry.keys.end() ? std::vector<std::string>() : SplitAtCommas(listed->second);
}

StatusOr<std::vector<HostEntry>> ParseHostfile(std::string_view text, std::string_view file_name) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    return InvalidArgumentError(std::string(file_name) +
                                ": the file is UTF-16 (its byte-order mark says so): save it as "
                                "UTF-8, or convert it: iconv -f UTF-16 -t UTF-8");
  }
  const std::vector<HostLine> lines = FindHostLines(text);
  const auto at = [&](int line) { return std::string(file_name) + ":" + std::to_string(line); };
  if (lines.empty()) {
    return InvalidArgumentError(std::string(file_name) +
                                ": no host in it; expected lines like 'localhost slots=8'");
  }
  for (const HostLine& line : lines) {
    DS_RETURN_IF_ERROR(RefuseOddBlanks(line).WithContext(at(line.number)));
  }
  if (const std::optional<std::vector<HostEntry>> counted = CountLines(lines)) {
    for (const HostEntry& host : *counted) {
      const Status good = CheckCounted(host);
      if (!good.ok()) return good.WithContext(at(host.line));
    }
    return *counted;
  }
  std::vector<HostEntry> hosts;
  std::map<std::string, int> first_line;
  for (const HostLine& line : lines) {
    StatusOr<std::vector<HostEntry>> entries = ParseLine(line);
    if (!entries.ok()) return entries.status().WithContext(at(line.number));
    for (HostEntry& entry : *entries) {
      const auto [earlier, fresh] = first_line.emplace(entry.name, line.number);
      if (!fresh) {
        return InvalidArgumentError(at(line.number) + ": host " + entry.name +
                                    " is listed twice, first in line " +
                                    std::to_string(earlier->second));
      }
      hosts.push_back(std::move(entry));
    }
  }
  return hosts;
}

StatusOr<std::vector<HostEntry>> ReadHostfile(const std::filesystem::path& path) {
  StatusOr<std::string> text = ReadFile(path, kMaxHostfileBytes);
  if (!text.ok()) return Status(text.status().code(), "--hostfile " + text.status().message());
  return ParseHostfile(*text, path.string());
}

}  // namespace ds::cli
