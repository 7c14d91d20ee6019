#include "cli/remote/daemon_binary.h"

#include <openssl/evp.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>

#include "runtime/base/files.h"

namespace ds::cli {
namespace {

StatusOr<std::string> Sha256(const std::string& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (::EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, ::EVP_sha256(), nullptr) !=
      1) {
    return InternalError("SHA-256 is not available");
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

}  // namespace

StatusOr<DaemonBinary> ReadDaemonBinary() {
  DS_ASSIGN_OR_RETURN(const std::filesystem::path self, FindOwnExecutable());
  DaemonBinary binary{.path = self.parent_path() / "dsrund"};
  StatusOr<std::string> bytes = ReadFile(binary.path);
  if (!bytes.ok()) {
    return bytes.status().WithContext(
        "dsrund must be in the folder of dsrun: build or install both");
  }
  binary.bytes = std::move(bytes).value();
  DS_ASSIGN_OR_RETURN(binary.sha256, Sha256(binary.bytes));
  utsname machine{};
  ::uname(&machine);
  binary.machine = std::string(machine.sysname) + " " + machine.machine;
  const std::filesystem::path dsrank = self.parent_path() / "dsrank";
  if (::access(dsrank.c_str(), X_OK) == 0) binary.dsrank = dsrank.string();
  return binary;
}

}  // namespace ds::cli
