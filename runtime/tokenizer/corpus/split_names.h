#pragma once

// Finds the splits of a data set from file names, by the rules of `datasets` (its data_files.py).
// Pure.

#include <map>
#include <string>
#include <vector>

namespace ds::tokenizer {

// Returns the files of every split, as paths relative to the folder; empty where no name contains a
// split. The rules are tried in this order, and the first that finds a split applies to all files:
// data/SPLIT-00000-of-00001.*, a folder named after a split, a file named after one.
std::map<std::string, std::vector<std::string>> FindSplits(const std::vector<std::string>& paths);

// Returns true if the path matches a pattern of a card: *, ? and [a-z] within a name, ** for
// folders.
bool MatchesCardPattern(const std::string& pattern, const std::string& path);

}  // namespace ds::tokenizer
