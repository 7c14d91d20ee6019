#pragma once

// IndexedRows: rows of whole numbers out of the two files that DeepSpeed's data analyzer writes
// (deepspeed/runtime/data_pipeline/data_sampling/indexed_dataset.py, MMapIndexedDataset):
// PREFIX.bin has the numbers one behind the other, PREFIX.idx their dtype and how many each row
// has.
//
// The .idx file is laid out as index_format.h says; nothing here needs the documents. Dtypes have
// other codes than in Megatron-LM's files of tokens (megatron_index.h).

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::data {

struct IndexedRows {
  std::vector<std::int64_t> numbers;
  std::vector<std::int64_t> ends;  // of each row, in numbers
};

// Reads both files as a whole. Errors name the file and what is wrong with it.
StatusOr<IndexedRows> ReadIndexedRows(const std::string& prefix);

}  // namespace ds::data
