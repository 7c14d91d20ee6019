#pragma once

// ListDataFiles expands the paths of --data, --eval_data and the FILES of `tokenize` to data files.
//
// A path is a file, a pattern (base/glob.h) or a folder. From a folder it takes only data files
// (data_kind.h), sorted by path; from a folder with splits, one split only (dataset_folder.h).
// `dsrun` calls it before the ranks start, and every rank calls it again, with the same errors.
// Reads the first bytes of every file. Thread-safe.

#include <string>
#include <vector>

#include "runtime/tokenizer/corpus/data_kind.h"

namespace ds::tokenizer {

struct DataFiles {
  std::vector<DataFile> files;
  std::vector<std::string> notices;  // one for each folder with files that are skipped
};

// Rejects a path that does not exist, a pattern without a match, files that are empty or cannot be
// read as data, a folder without data files, and a folder with files of several formats.
StatusOr<DataFiles> ListDataFiles(const std::vector<std::string>& paths,
                                  DataUse use = DataUse::kTraining);

}  // namespace ds::tokenizer
