#pragma once

// IndexedRows: rows of integers from the two files that DeepSpeed's data analyzer writes
// (deepspeed/runtime/data_pipeline/data_sampling/indexed_dataset.py, MMapIndexedDataset).
// PREFIX.bin holds the numbers of all rows in sequence. PREFIX.idx holds their dtype and the length
// of each row.
//
// index_format.h describes the layout of the .idx file; its documents are not used here. The dtype
// codes differ from the codes in Megatron-LM's token files (megatron_index.h).

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::data {

struct IndexedRows {
  std::vector<std::int64_t> numbers;
  std::vector<std::int64_t> ends;  // end of each row, as an index into `numbers`
};

// Reads both files completely. Errors name the file and the problem.
StatusOr<IndexedRows> ReadIndexedRows(const std::string& prefix);

}  // namespace ds::data
