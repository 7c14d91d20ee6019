#include "runtime/checkpoint/shared_folder.h"

#include "runtime/checkpoint_format/folder_mark.h"
#include "runtime/comm/agreement.h"

namespace ds::checkpoint {

Status CheckSharedFolder(const std::filesystem::path& folder, const std::string& mark,
                         comm::Communicator& world) {
  const Status agreed = comm::AgreeOnStatus(FindFolderMark(folder, mark), world);
  if (world.rank() == 0) RemoveFolderMark(folder, mark);
  return agreed;
}

}  // namespace ds::checkpoint
