#include "runtime/tokenizer/corpus/split_names.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>

namespace ds::tokenizer {
namespace {

using Splits = std::map<std::string, std::vector<std::string>>;

struct Keywords {
  const char* split;
  std::array<std::string_view, 4> words;  // "" for unused entries
};

constexpr auto kKeywords =
    std::to_array<Keywords>({{"train", {"train", "training"}},
                             {"validation", {"validation", "valid", "dev", "val"}},
                             {"test", {"test", "testing", "eval", "evaluation"}}});

bool IsSeparator(char c) {
  return std::string_view("-._ ").find(c) != std::string_view::npos || (c >= '0' && c <= '9');
}

// Returns true if the name contains the word between separators. A file's name continues after it.
bool HasWord(std::string_view name, std::string_view word, bool is_file) {
  for (std::size_t at = name.find(word); at != std::string_view::npos;
       at = name.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || IsSeparator(name[at - 1]);
    const bool ends = end == name.size() ? !is_file : IsSeparator(name[end]);
    if (begins && ends) return true;
  }
  return false;
}

std::vector<std::string_view> PartsOf(std::string_view path) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t slash = path.find('/');
    parts.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    path.remove_prefix(slash + 1);
  }
}

bool IsNamedAfter(std::string_view path, const Keywords& keywords, bool by_folder) {
  const std::vector<std::string_view> parts = PartsOf(path);
  const auto begin = by_folder ? parts.begin() : parts.end() - 1;
  const auto end = by_folder ? parts.end() - 1 : parts.end();
  return std::any_of(begin, end, [&](std::string_view part) {
    return std::any_of(keywords.words.begin(), keywords.words.end(), [&](std::string_view word) {
      return !word.empty() && HasWord(part, word, !by_folder);
    });
  });
}

Splits FindByKeywords(const std::vector<std::string>& paths, bool by_folder) {
  Splits splits;
  for (const std::string& path : paths) {
    for (const Keywords& keywords : kKeywords) {
      if (IsNamedAfter(path, keywords, by_folder)) splits[keywords.split].push_back(path);
    }
  }
  return splits;
}

// Returns the split of data/SPLIT-00000-of-00001.ENDING.
std::optional<std::string> SplitOfShard(const std::string& path) {
  static constexpr char kShard[] =
      "data/*-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]*.*";
  if (::fnmatch(kShard, path.c_str(), FNM_PATHNAME) != 0) return std::nullopt;
  const std::string name = path.substr(std::string_view("data/").size());
  return name.substr(0, name.rfind("-of-") - std::string_view("-00000").size());
}

bool Matches(std::string_view pattern, std::string_view part) {
  return ::fnmatch(std::string(pattern).c_str(), std::string(part).c_str(), 0) == 0;
}

}  // namespace

Splits FindSplits(const std::vector<std::string>& paths) {
  Splits splits;
  for (const std::string& path : paths) {
    if (const auto split = SplitOfShard(path)) splits[*split].push_back(path);
  }
  if (splits.empty()) splits = FindByKeywords(paths, /*by_folder=*/true);
  if (splits.empty()) splits = FindByKeywords(paths, /*by_folder=*/false);
  return splits;
}

bool MatchesCardPattern(const std::string& pattern, const std::string& path) {
  const std::vector<std::string_view> patterns = PartsOf(pattern), parts = PartsOf(path);
  // The numbers of parts that the patterns so far can match.
  std::vector<bool> reached(parts.size() + 1, false);
  reached[0] = true;
  for (std::size_t p = 0; p < patterns.size(); ++p) {
    std::vector<bool> next(parts.size() + 1, false);
    for (std::size_t at = 0; at < parts.size(); ++at) {
      if (patterns[p] == "**") {
        const bool is_last = p + 1 == patterns.size();
        next[at] = !is_last && (reached[at] || (at > 0 && next[at - 1]));
        if (is_last && reached[at]) return true;
      } else if (reached[at] && Matches(patterns[p], parts[at])) {
        next[at + 1] = true;
      }
    }
    reached = std::move(next);
  }
  return reached[parts.size()];
}

}  // namespace ds::tokenizer
