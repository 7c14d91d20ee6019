#pragma once

// DaemonBinary: the dsrund that is put on hosts, with what tells it from any other.
//
// Threads: a plain value.

#include <filesystem>
#include <string>

#include "runtime/base/status.h"

namespace ds::cli {

struct DaemonBinary {
  std::filesystem::path path;
  std::string bytes;
  std::string sha256;   // of the bytes, 64 hexadecimal digits
  std::string machine;  // as uname says it: "Linux x86_64"
  std::string dsrank;   // the dsrank beside it; "" when there is none
  std::string file_name() const { return "dsrund-" + sha256.substr(0, 16); }
};

// The dsrund beside this program. kNotFound when there is none.
StatusOr<DaemonBinary> ReadDaemonBinary();

}  // namespace ds::cli
