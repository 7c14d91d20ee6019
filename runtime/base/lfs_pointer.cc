#include "runtime/base/lfs_pointer.h"

namespace ds {

bool IsLfsPointer(std::string_view bytes) { return bytes.starts_with(kLfsPointerStart); }

Status CheckNoLfsPointer(std::string_view bytes) {
  if (!IsLfsPointer(bytes)) return OkStatus();
  return InvalidArgumentError(
      "this is a Git LFS pointer, not the file itself: run \"git lfs pull\" in the repository that "
      "it was cloned from, or download the file again");
}

}  // namespace ds
