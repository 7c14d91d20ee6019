#include "runtime/base/host_name.h"

#include <unistd.h>

#include <array>
#include <climits>

namespace ds {

std::string HostName(const std::string& otherwise) {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : otherwise;
}

}  // namespace ds
