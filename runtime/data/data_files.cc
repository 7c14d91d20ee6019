#include "runtime/data/data_files.h"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"

namespace ds::data {
namespace fs = std::filesystem;
namespace {

bool IsHidden(const fs::path& path) { return path.filename().string().starts_with("."); }

Status AppendFolder(const fs::path& folder, std::vector<fs::path>* files) {
  std::error_code error;
  std::vector<fs::path> found;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (IsHidden(entry->path())) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file(error)) {
      found.push_back(entry->path());
    }
  }
  if (error) return ErrnoError(error.value(), folder.string());
  if (found.empty())
    return InvalidArgumentError(folder.string() + ": the data folder has no files");
  std::sort(found.begin(), found.end());
  files->insert(files->end(), found.begin(), found.end());
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<fs::path>> ListDataFiles(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      DS_RETURN_IF_ERROR(AppendFolder(path, &files));
    } else if (fs::exists(path, error)) {
      files.emplace_back(path);
    } else {
      return NotFoundError(path + ": no such data file or folder");
    }
  }
  return files;
}

StatusOr<std::string> ReadJsonlTexts(const fs::path& path) {
  DS_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, std::uint64_t{1} << 36));
  std::string texts;
  std::size_t begin = 0;
  for (int line = 1; begin < content.size(); ++line) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    const std::string_view row(content.data() + begin, end - begin);
    begin = end + 1;
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto json = nlohmann::json::parse(row, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("text") || !json["text"].is_string()) {
      return InvalidArgumentError(path.string() + ":" + std::to_string(line) +
                                  ": not a JSON object with a string under \"text\"");
    }
    texts += json["text"].get_ref<const std::string&>() + "\n";
  }
  return texts;
}

}  // namespace ds::data
