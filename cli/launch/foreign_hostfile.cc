#include "cli/launch/foreign_hostfile.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <span>

#include "cli/launch/blanks.h"
#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

constexpr std::string_view kDigits = "0123456789";

bool IsNumber(std::string_view text) {
  return !text.empty() && text.find_first_not_of(kDigits) == std::string_view::npos;
}

std::vector<std::string_view> SplitWords(std::string_view line) {
  std::vector<std::string_view> words;
  for (line = Strip(line); !line.empty();) words.push_back(TakeWord(&line));
  return words;
}

std::string Quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

// Expands "01-04,7" into the numbers as written in names.
StatusOr<std::vector<std::string>> ExpandRange(std::string_view list, std::size_t most) {
  const Status bad = InvalidArgumentError(
      "'[" + std::string(list) +
      "]' is not a range of numbers like [01-04,7] (write an IPv6 address without brackets)");
  std::vector<std::string> numbers;
  for (const std::string_view part : SplitAt(',', list)) {
    const std::size_t dash = part.find('-');
    const std::string_view first = part.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : part.substr(dash + 1);
    const auto from = ParseNumber<std::int64_t>(first);
    const auto to = ParseNumber<std::int64_t>(last);
    if (!IsNumber(first) || !IsNumber(last) || !from || !to || *from > *to) return bad;
    if (numbers.size() + static_cast<std::size_t>(*to - *from) >= most) {
      return InvalidArgumentError("[" + std::string(list) + "] has more than " +
                                  std::to_string(most) + " numbers");
    }
    for (std::int64_t i = 0; i <= *to - *from; ++i) {
      std::string digits = std::to_string(*from + i);
      if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
      numbers.push_back(std::move(digits));
    }
  }
  return numbers;
}

// True if the name has commas outside brackets.
bool IsList(std::string_view name) {
  int depth = 0;
  return std::any_of(name.begin(), name.end(), [&](char c) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    return c == ',' && depth == 0;
  });
}

Status CheckHostName(std::string_view name) {
  if (IsList(name)) {
    return InvalidArgumentError(Quoted(name) +
                                " is a list: write one line for each host, because a number after "
                                "a list may count each host or all hosts");
  }
  const std::size_t scheme = name.find("://");
  if (scheme != std::string_view::npos) {
    const std::string_view host = name.substr(scheme + 3);
    return InvalidArgumentError(Quoted(name) + " is a URL, not the name of a host: write " +
                                Quoted(host.substr(0, host.find_first_of("/:"))));
  }
  if (name.find_first_of("/=\"'") != std::string_view::npos) {
    return InvalidArgumentError(Quoted(name) + " is not the name of a host");
  }
  return OkStatus();
}

// True for LSF's LSB_MCPU_HOSTS: "a 8 b 8".
bool IsListOfCounts(std::span<const std::string_view> words) {
  if (words.size() < 4 || words.size() % 2 != 0) return false;
  for (std::size_t i = 1; i < words.size(); i += 2) {
    if (!IsNumber(words[i])) return false;
  }
  return true;
}

}  // namespace

StatusOr<std::vector<std::string>> ExpandHostName(std::string_view name, int most) {
  DS_RETURN_IF_ERROR(CheckHostName(name));
  const auto limit = static_cast<std::size_t>(most);
  std::vector<std::string> names = {""};
  while (!name.empty()) {
    const std::size_t open = name.find('[');
    for (std::string& each : names) each += name.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::size_t close = name.find(']', open);
    if (close == std::string_view::npos) {
      return InvalidArgumentError("the '[' of the host's name is never closed");
    }
    DS_ASSIGN_OR_RETURN(const std::vector<std::string> numbers,
                        ExpandRange(name.substr(open + 1, close - open - 1), limit));
    if (names.size() * numbers.size() > limit) {
      return InvalidArgumentError("the ranges name more than " + std::to_string(limit) + " hosts");
    }
    std::vector<std::string> longer;
    for (const std::string& start : names) {
      for (const std::string& number : numbers) longer.push_back(start + number);
    }
    names = std::move(longer);
    name.remove_prefix(close + 1);
  }
  return names;
}

std::string TranslateHostLine(std::string_view line) {
  const std::vector<std::string_view> words = SplitWords(line.substr(0, line.find(" #")));
  if (words.empty()) return "";
  const std::string_view host = words[0];
  const auto write = [](std::string_view name, std::string_view slots) {
    return "write '" + std::string(name) + " slots=" + std::string(slots) + "'";
  };
  const std::size_t colon = host.find(':');
  const bool one_colon = colon != std::string_view::npos && colon == host.rfind(':');
  if (words.size() == 1 && one_colon && colon > 0 && IsNumber(host.substr(colon + 1))) {
    return write(host.substr(0, colon), host.substr(colon + 1)) + " for MPICH's HOST:N";
  }
  if (words.size() == 1) {
    return write(host, "N") +
           ", where N is its number of ranks: such a line means one rank for PBS and MPICH, and "
           "one per core for Open MPI";
  }
  if (IsListOfCounts(words)) {
    return write(host, words[1]) + " and a further line for each host of LSF's 'HOST N HOST N'";
  }
  if (IsNumber(words[1])) return write(host, words[1]) + " for Grid Engine's 'HOST N QUEUE'";
  std::string joined;  // "slots = 4", "SLOTS=4", "cpu=4"
  for (const std::string_view word : std::span(words).subspan(1)) joined += word;
  std::transform(joined.begin(), joined.end(), joined.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view key : {"slots=", "cpu=", "cpus=", "count="}) {
    if (!joined.starts_with(key)) continue;
    const std::string_view number = std::string_view(joined).substr(key.size());
    if (IsNumber(number)) return write(host, number);
  }
  return "";
}

bool IsMaxSlots(std::string_view key) { return key == "max_slots" || key == "max-slots"; }

}  // namespace ds::cli
