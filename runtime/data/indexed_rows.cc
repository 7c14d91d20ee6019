#include "runtime/data/indexed_rows.h"

#include <array>
#include <string_view>

#include "runtime/base/files.h"
#include "runtime/plan/data/index_format.h"

namespace ds::data {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 40;

struct Dtype {
  std::size_t bytes = 0;
  bool is_signed = false;
};
// Indexed by the index file's code.
constexpr std::array<Dtype, 9> kDtypes = {{{},
                                           {1, false},
                                           {1, true},
                                           {2, true},
                                           {4, true},
                                           {8, true},
                                           {2, false},
                                           {4, false},
                                           {8, false}}};

Status DamagedMap(const fs::path& path, const std::string& what) {
  return DataLossError(ShortenPath(path) + ": " + what +
                       "; it is damaged, or not what DeepSpeed's data analyzer has written");
}

// Returns an element as int64. A uint64 beyond int64 becomes negative, which no valid sample or
// metric is.
std::int64_t WholeNumberAt(const char* bytes, Dtype dtype) {
  const bool is_signed = dtype.is_signed;
  switch (dtype.bytes) {
    case 1:
      return is_signed ? NumberAt<std::int8_t>(bytes) : NumberAt<std::uint8_t>(bytes);
    case 2:
      return is_signed ? NumberAt<std::int16_t>(bytes) : NumberAt<std::uint16_t>(bytes);
    case 4:
      return is_signed ? std::int64_t{NumberAt<std::int32_t>(bytes)}
                       : std::int64_t{NumberAt<std::uint32_t>(bytes)};
    default:
      return NumberAt<std::int64_t>(bytes);
  }
}

struct RowIndex {
  Dtype dtype;
  std::vector<std::int64_t> ends;
};

StatusOr<RowIndex> ParseIndex(const fs::path& path, std::string_view bytes) {
  if (bytes.size() < kIndexHeaderBytes || !bytes.starts_with(kIndexMagic) ||
      NumberAt<std::uint64_t>(bytes.data() + 9) != 1) {
    return DamagedMap(path, "it does not begin as such an index does");
  }
  const auto code = static_cast<std::uint8_t>(bytes[17]);
  if (code == 0 || code >= kDtypes.size()) {
    return DamagedMap(path, "nothing is known of its dtype " + std::to_string(code));
  }
  const auto rows = NumberAt<std::uint64_t>(bytes.data() + 18);
  const auto documents = NumberAt<std::uint64_t>(bytes.data() + 26);
  const std::size_t room = bytes.size() - kIndexHeaderBytes;
  if (rows > room / 12 || documents > room / 8 || room != 12 * rows + 8 * documents) {
    return DamagedMap(path, "it has " + std::to_string(bytes.size()) +
                                " bytes, which is not what the rows that it counts take");
  }
  RowIndex index{.dtype = kDtypes[code], .ends = {}};
  std::int64_t end = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto length = NumberAt<std::int32_t>(bytes.data() + kIndexHeaderBytes + 4 * row);
    const auto first =
        NumberAt<std::int64_t>(bytes.data() + kIndexHeaderBytes + 4 * rows + 8 * row);
    if (length < 0 || first != end * static_cast<std::int64_t>(index.dtype.bytes)) {
      return DamagedMap(path,
                        "row " + std::to_string(row) + " does not lie behind the one before it");
    }
    index.ends.push_back(end += length);
  }
  return index;
}

}  // namespace

StatusOr<IndexedRows> ReadIndexedRows(const std::string& prefix) {
  const fs::path index_path = prefix + ".idx", numbers_path = prefix + ".bin";
  DS_ASSIGN_OR_RETURN(const std::string index_bytes, ReadFile(index_path, kMaxBytes));
  DS_ASSIGN_OR_RETURN(RowIndex index, ParseIndex(index_path, index_bytes));
  DS_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(numbers_path, kMaxBytes));
  const auto count = static_cast<std::size_t>(index.ends.empty() ? 0 : index.ends.back());
  if (bytes.size() != count * index.dtype.bytes) {
    return DamagedMap(numbers_path, "it has " + std::to_string(bytes.size()) +
                                        " bytes, and its index counts " + std::to_string(count) +
                                        " numbers of " + std::to_string(index.dtype.bytes));
  }
  IndexedRows rows{.numbers = std::vector<std::int64_t>(count), .ends = std::move(index.ends)};
  for (std::size_t i = 0; i < count; ++i) {
    rows.numbers[i] = WholeNumberAt(bytes.data() + i * index.dtype.bytes, index.dtype);
  }
  return rows;
}

}  // namespace ds::data
