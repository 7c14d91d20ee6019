#pragma once

// The files of a folder that are its data, as `datasets` takes them.
//
// - A folder of Dataset.save_to_disk: the files of state.json, in its order. Of a DatasetDict: the
//   folder of the split.
// - A folder of the Hugging Face cache (blobs, refs, snapshots): the snapshot of refs/main.
// - Others, such as a snapshot of the hub: the files of the split by the `configs` of the card,
// else
//   by the names of files and folders (data/train-00000-of-00002.parquet, train.jsonl,
//   training/a.txt); all data files where no name says a split.
//
// The split follows from the use (DataUse).
//
// Names alone decide; only state.json, dataset_dict.json, refs/main and the card are read.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/data_kind.h"

namespace ds::tokenizer {

struct FolderData {
  std::vector<std::filesystem::path> files;  // not empty
  std::string notice;                        // names the files that are not taken; "" without
};

// Refuses a folder without data files, without the split for the use where it has others, with
// files in several formats, or with several configurations and no default.
StatusOr<FolderData> ListFolder(const std::filesystem::path& folder, DataUse use);

}  // namespace ds::tokenizer
