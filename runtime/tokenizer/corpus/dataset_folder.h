#pragma once

// ListFolder finds the data files of a folder, by the rules of `datasets`.
//
// - A folder of Dataset.save_to_disk: the files of state.json, in its order. For a DatasetDict: the
//   folder of the split.
// - A folder of the Hugging Face cache (blobs, refs, snapshots): the snapshot of refs/main.
// - Others, such as a snapshot of the hub: the files of the split, by the `configs` of the card,
//   else by the names of files and folders (data/train-00000-of-00002.parquet, train.jsonl,
//   training/a.txt). If no name contains a split, all data files.
//
// The use of the data selects the split (DataUse).
//
// Only names are examined; the only files read are state.json, dataset_dict.json, refs/main and the
// card.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/data_kind.h"

namespace ds::tokenizer {

struct FolderData {
  std::vector<std::filesystem::path> files;  // not empty
  std::string notice;                        // names the skipped files; "" if there are none
};

// Rejects a folder without data files, without the split for this use while it has others, with
// files in several formats, or with several configurations and no default.
StatusOr<FolderData> ListFolder(const std::filesystem::path& folder, DataUse use);

}  // namespace ds::tokenizer
