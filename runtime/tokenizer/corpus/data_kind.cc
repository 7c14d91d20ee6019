#include "runtime/tokenizer/corpus/data_kind.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "runtime/base/files.h"
#include "runtime/base/lfs_pointer.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/corpus/byte_stream.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;
using std::string_view_literals::operator""sv;

struct Ending {
  std::string_view ending;
  DataGroup group;
  DataKind kind;
};

constexpr auto kEndings = std::to_array<Ending>({
    {".txt", DataGroup::kTxt, DataKind::kText},
    {".text", DataGroup::kTxt, DataKind::kText},
    {".jsonl", DataGroup::kJson, DataKind::kLines},
    {".ndjson", DataGroup::kJson, DataKind::kLines},
    {".json", DataGroup::kJson, DataKind::kJson},
    {".csv", DataGroup::kTable, DataKind::kTable},
    {".tsv", DataGroup::kTable, DataKind::kTable},
    {".parquet", DataGroup::kParquet, DataKind::kRows},
    {".arrow", DataGroup::kArrow, DataKind::kRows},
    {".feather", DataGroup::kArrow, DataKind::kRows},
    {".bin", DataGroup::kTokens, DataKind::kTokens},
});

// Source code and text markup. ".md" is excluded: in a folder it is a card.
constexpr auto kSourceEndings = std::to_array<std::string_view>(
    {".c",     ".cc",  ".cpp", ".cxx",  ".h",   ".hh", ".hpp",   ".cu",   ".cuh",  ".cs",    ".css",
     ".dart",  ".el",  ".erl", ".ex",   ".f90", ".go", ".hs",    ".htm",  ".html", ".java",  ".jl",
     ".js",    ".jsx", ".kt",  ".lean", ".lua", ".m",  ".ml",    ".php",  ".pl",   ".proto", ".ps1",
     ".py",    ".r",   ".rb",  ".rs",   ".rst", ".s",  ".scala", ".scss", ".sh",   ".sql",   ".sv",
     ".swift", ".tex", ".ts",  ".tsx",  ".v",   ".vb", ".vhd",   ".xml",  ".zig"});

// A compressed or archived file and the command that unpacks it; "" where none is known.
struct Packed {
  std::string_view name, ending, magic, command;
};

constexpr auto kPacked = std::to_array<Packed>({
    {"Zstandard data", ".zst", "\x28\xb5\x2f\xfd"sv, "zstd -d"},
    {"xz data", ".xz",
     "\xfd"
     "7zXZ\0"sv,
     "xz -dk"},
    {"bzip2 data", ".bz2", "BZh"sv, "bzip2 -dk"},
    {"LZ4 data", ".lz4", "\x04\x22\x4d\x18"sv, "lz4 -d"},
    {"a zip archive", ".zip", "PK\x03\x04"sv, "unzip"},
    {"a 7z archive", ".7z", "7z\xbc\xaf\x27\x1c"sv, "7z x"},
    {"a tar archive", ".tar", ""sv, "tar -xf"},
    {"a tar archive", ".tgz", ""sv, "tar -xf"},
    {"a rar archive", ".rar", "Rar!\x1a\x07"sv, "unrar x"},
});

struct Magic {
  std::string_view begin, name;
};

constexpr auto kBinaries = std::to_array<Magic>({
    {"PAR1"sv, "a Parquet file: name it .parquet"},
    {"ARROW1"sv, "an Arrow file: name it .arrow"},
    {"\x89HDF\r\n"sv, "an HDF5 file"},
    {"%PDF-"sv, "a PDF file"},
    {"SQLite format 3\0"sv, "an SQLite database"},
    {"\x93NUMPY"sv, "a NumPy array"},
    {"\x7f"
     "ELF"sv,
     "a program"},
    {"\x89PNG"sv, "a PNG image"},
    {"\xff\xd8\xff"sv, "a JPEG image"},
    {kGzipStart, "compressed twice: unpack it with gunzip"},
});

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string EndingOf(const fs::path& path) { return Lower(path.extension().string()); }

bool IsCompressedName(const fs::path& path) {
  static constexpr auto kCompressed =
      std::to_array<std::string_view>({".gz", ".zst", ".xz", ".bz2", ".lz4"});
  const std::string ending = EndingOf(path);
  return std::find(kCompressed.begin(), kCompressed.end(), ending) != kCompressed.end();
}

// Returns the name without the extension of a compression.
fs::path InnerName(const fs::path& path) {
  return IsCompressedName(path) ? path.filename().stem() : path.filename();
}

const Ending* FindEnding(const fs::path& path) {
  const std::string ending = EndingOf(InnerName(path));
  const auto* const found = std::find_if(kEndings.begin(), kEndings.end(),
                                         [&](const Ending& each) { return each.ending == ending; });
  return found == kEndings.end() ? nullptr : found;
}

bool IsSource(const fs::path& path) {
  const std::string ending = EndingOf(InnerName(path));
  return std::find(kSourceEndings.begin(), kSourceEndings.end(), ending) != kSourceEndings.end();
}

Status RefuseFile(const fs::path& path, const std::string& what) {
  return InvalidArgumentError(ShortenPath(path) + ": " + what);
}

Status CheckPacked(const fs::path& path, std::string_view begin) {
  const std::string ending = EndingOf(path), inner = EndingOf(InnerName(path));
  for (const Packed& each : kPacked) {
    const bool by_name = each.ending == ending || each.ending == inner;
    const bool by_magic = !each.magic.empty() && begin.starts_with(each.magic);
    const bool is_tar =
        each.ending == ".tar" && begin.size() > 262 && begin.substr(257, 5) == "ustar";
    if (!by_name && !by_magic && !is_tar) continue;
    return RefuseFile(path, "this is " + std::string(each.name) +
                                ", which is not read: unpack it (" + std::string(each.command) +
                                " FILE) and name the result");
  }
  return OkStatus();
}

// Returns true for a text of two bytes per character without a byte order mark: every second byte
// of ASCII is 0.
bool LooksLikeUtf16(std::string_view begin) {
  std::size_t zeros[2] = {0, 0};
  for (std::size_t i = 0; i < begin.size(); ++i) zeros[i % 2] += begin[i] == '\0' ? 1 : 0;
  const std::size_t half = begin.size() / 2;
  return half >= 4 && (zeros[0] * 4 > half * 3 || zeros[1] * 4 > half * 3) &&
         (zeros[0] == 0 || zeros[1] == 0);
}

Status CheckBytes(const fs::path& path, std::string_view begin) {
  if (begin.starts_with("\xff\xfe"sv) || begin.starts_with("\xfe\xff"sv) || LooksLikeUtf16(begin)) {
    return RefuseFile(path,
                      "the text is UTF-16, and only UTF-8 is read: convert it (iconv -f UTF-16 -t "
                      "UTF-8 FILE > NEW)");
  }
  for (const Magic& each : kBinaries) {
    if (begin.starts_with(each.begin)) {
      return RefuseFile(path, "this is no text but " + std::string(each.name));
    }
  }
  const std::size_t zero = begin.find('\0');
  if (zero == std::string_view::npos) return OkStatus();
  return RefuseFile(path,
                    "this is no text but a binary file (byte " + std::to_string(zero) + " is 0)");
}

char FirstMark(std::string_view begin) {
  if (begin.starts_with(kByteOrderMark)) begin.remove_prefix(kByteOrderMark.size());
  const std::size_t at = begin.find_first_not_of(" \t\r\n");
  return at == std::string_view::npos ? '\0' : begin[at];
}

Status CheckRowFile(const fs::path& path, std::string_view begin) {
  const bool is_parquet = EndingOf(path) == ".parquet";
  const bool is_arrow = begin.starts_with("ARROW1") || begin.starts_with("\xff\xff\xff\xff"sv);
  if (is_parquet ? begin.starts_with("PAR1") : is_arrow) return OkStatus();
  return RefuseFile(path, std::string("the file does not begin as ") +
                              (is_parquet ? "Parquet" : "Arrow") +
                              " files do: is it damaged, or of "
                              "another format?");
}

// Judges a file by its bytes if its name is unknown.
StatusOr<DataFile> JudgeUnknown(const fs::path& path, std::string_view begin) {
  const std::size_t valid = ValidUtf8Prefix(begin);
  // The last character may be incomplete.
  if (begin.size() - valid > (begin.size() == kJudgedBytes ? 3 : 0)) {
    return RefuseFile(path, "the file name has no known ending, and byte " + std::to_string(valid) +
                                " is not UTF-8 text");
  }
  const char first = FirstMark(begin);
  if (first == '{' || first == '[') {
    return RefuseFile(
        path,
        "the file name has no known ending, and the file looks like JSON: name it .jsonl (an "
        "object per line) or .json to read it so, or .txt to read it as text");
  }
  return DataFile{.path = path};
}

}  // namespace

std::optional<DataGroup> GroupOf(const fs::path& path) {
  if (const Ending* const known = FindEnding(path)) return known->group;
  return IsSource(path) ? std::optional(DataGroup::kSource) : std::nullopt;
}

bool AccompaniesData(const fs::path& path) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "config.json",
       "readme.txt", "license.txt", "licence.txt", "notice.txt", "requirements.txt"});
  const std::string name = Lower(path.filename().string());
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         name.ends_with(".index.json") || name.starts_with(".");
}

StatusOr<DataFile> JudgeDataFile(const fs::path& path, std::string_view begin) {
  DS_RETURN_IF_ERROR(CheckNoLfsPointer(begin).WithContext(ShortenPath(path)));
  if (EndingOf(path) == ".idx") {
    return RefuseFile(path, "this is the index of a token file: name the .bin file");
  }
  const Ending* const known = FindEnding(path);
  const DataKind kind = known == nullptr ? DataKind::kText : known->kind;
  if (kind == DataKind::kTokens || kind == DataKind::kRows) {
    if (IsCompressedName(path)) {
      return RefuseFile(path, "compressed, a file of this format is not read: unpack it first");
    }
    if (kind == DataKind::kRows) DS_RETURN_IF_ERROR(CheckRowFile(path, begin));
    return DataFile{.path = path, .kind = kind};
  }
  DS_RETURN_IF_ERROR(CheckPacked(path, begin));
  DS_RETURN_IF_ERROR(CheckBytes(path, begin));
  if (known == nullptr) {
    if (IsSource(path) || EndingOf(InnerName(path)) == ".md") return DataFile{.path = path};
    return JudgeUnknown(path, begin);
  }
  const char first = FirstMark(begin);
  if (kind != DataKind::kText && first == '<') {
    return RefuseFile(path,
                      "the file begins as HTML or XML: is it a page that was saved in place of "
                      "the data?");
  }
  if (kind == DataKind::kLines && first == '[')
    return DataFile{.path = path, .kind = DataKind::kJson};
  return DataFile{
      .path = path, .kind = kind, .separator = EndingOf(InnerName(path)) == ".tsv" ? '\t' : ','};
}

}  // namespace ds::tokenizer
