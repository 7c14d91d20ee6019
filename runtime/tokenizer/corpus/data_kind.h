#pragma once

// Decides how a data file is read, from its name and its first bytes. It is the only place that
// knows the names of formats: listing, reading, `dsrun` and the ranks all call it.
//
// Errors give the reason (a Git LFS pointer, UTF-16, an archive) and the command that helps. Pure.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::tokenizer {

enum class DataKind : std::uint8_t {
  kText,    // one text
  kLines,   // a JSON object per line (.jsonl, .ndjson)
  kJson,    // JSON: an array of objects, or concatenated objects
  kTable,   // .csv or .tsv with a header
  kRows,    // Parquet or Arrow
  kTokens,  // .bin: token ids
};

struct DataFile {
  std::filesystem::path path;
  DataKind kind = DataKind::kText;
  char separator = ',';  // of a table

  friend bool operator==(const DataFile&, const DataFile&) = default;
};

// Selects the split of a folder: "train" for training, "validation" or else "test" for evaluation.
enum class DataUse : std::uint8_t { kTraining, kEvaluation };

// The number of leading bytes that JudgeDataFile needs, after decompression.
inline constexpr std::size_t kJudgedBytes = 4096;

// Files of two groups do not form one data set. The groups are the formats of `datasets`, plus
// kSource: source code and markup, which `datasets` skips.
enum class DataGroup : std::uint8_t { kTxt, kSource, kJson, kTable, kParquet, kArrow, kTokens };

// Returns the group of a file by its extension, or nothing for an unknown one. Compression suffixes
// such as .gz are ignored.
std::optional<DataGroup> GroupOf(const std::filesystem::path& path);

// Returns true for files that accompany data and are never data: cards, licences, indices,
// descriptions.
bool AccompaniesData(const std::filesystem::path& path);

// Decides how the file is read. `begin` holds its first bytes (up to kJudgedBytes), decompressed. A
// file with an unknown extension is a text if its bytes are UTF-8 and do not look like a format.
StatusOr<DataFile> JudgeDataFile(const std::filesystem::path& path, std::string_view begin);

}  // namespace ds::tokenizer
