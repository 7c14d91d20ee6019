#pragma once

// The splits that the names of files say, by the rules of `datasets` (its data_files.py). Pure.

#include <map>
#include <string>
#include <vector>

namespace ds::tokenizer {

// The files of every split, by paths relative to the folder; empty where no name says a split. The
// rules are tried in this order, and the first that finds a split holds for all files:
// data/SPLIT-00000-of-00001.*, a folder named after a split, a file named after one.
std::map<std::string, std::vector<std::string>> FindSplits(const std::vector<std::string>& paths);

// True when the path matches a pattern of a card: *, ? and [a-z] within a name, ** for folders.
bool MatchesCardPattern(const std::string& pattern, const std::string& path);

}  // namespace ds::tokenizer
