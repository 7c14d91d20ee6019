#pragma once

// ListDataFiles: the files that --data, --eval_data and the FILES of `tokenize` stand for.
//
// A path is a file, a pattern (base/glob.h) or a folder. Of a folder only data files are taken
// (data_kind.h), sorted by path; of a folder with splits, one split alone (dataset_folder.h).
// `dsrun` calls it before ranks start, and so does every rank: the errors are the same. Reads the
// first bytes of every file. Threads: any.

#include <string>
#include <vector>

#include "runtime/tokenizer/corpus/data_kind.h"

namespace ds::tokenizer {

struct DataFiles {
  std::vector<DataFile> files;
  std::vector<std::string> notices;  // one for each folder that has files which are not taken
};

// Refuses a path that does not exist, a pattern without a match, files that are empty or cannot be
// read as data, a folder without data files, and a folder with files of several formats.
StatusOr<DataFiles> ListDataFiles(const std::vector<std::string>& paths,
                                  DataUse use = DataUse::kTraining);

}  // namespace ds::tokenizer
