#include "runtime/checkpoint/format/folder_mark.h"

#include <random>
#include <system_error>

#include "runtime/base/files.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = ".shared-";

}  // namespace

StatusOr<std::string> MakeFolderMark(const fs::path& folder) {
  DS_RETURN_IF_ERROR(MakeDirectories(folder));
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kPrefix)) RemoveFolderMark(folder, name);
  }
  std::random_device random;
  const std::string mark = kPrefix + std::to_string(random()) + "-" + std::to_string(random());
  DS_RETURN_IF_ERROR(WriteFileAtomically(folder / mark, "", 0600, Durability::kWhole));
  return mark;
}

Status FindFolderMark(const fs::path& folder, const std::string& mark) {
  std::error_code error;
  if (fs::exists(folder / mark, error)) return OkStatus();
  return FailedPreconditionError(
      folder.string() +
      " is another folder here than where the job was started: checkpoints of several hosts need "
      "one that all of them and the host of dsrun share; name it with --run_dir");
}

void RemoveFolderMark(const fs::path& folder, const std::string& mark) {
  std::error_code ignored;
  fs::remove(folder / mark, ignored);
}

}  // namespace ds::checkpoint
