#include "runtime/checkpoint/shared_folder.h"

#include <cstdint>
#include <random>
#include <string>
#include <system_error>

#include "runtime/base/files.h"
#include "runtime/comm/agreement.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

Status FindMark(const fs::path& mark) {
  std::error_code error;
  if (fs::exists(mark, error)) return OkStatus();
  return FailedPreconditionError(
      mark.parent_path().string() +
      " is another folder here than on the host of rank 0: checkpoints of several hosts need one "
      "that all of them share; name it with --run_dir");
}

}  // namespace

Status CheckSharedFolder(const fs::path& folder, comm::Communicator& world) {
  const auto drawn = static_cast<std::int64_t>(std::random_device()());
  const std::int64_t number = comm::GatherNumber(drawn, world).front();
  const fs::path mark = folder / (".shared-" + std::to_string(number));
  Status made;
  if (world.rank() == 0) {
    made = MakeDirectories(folder);
    if (made.ok()) made = WriteFileAtomically(mark, "", 0600, Durability::kWhole);
  }
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(made, world));
  const Status agreed = comm::AgreeOnStatus(FindMark(mark), world);
  std::error_code ignored;
  if (world.rank() == 0) fs::remove(mark, ignored);
  return agreed;
}

}  // namespace ds::checkpoint
