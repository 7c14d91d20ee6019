#pragma once

// DaemonBinary is the dsrund that is copied to hosts, with the properties that identify it.
//
// Thread-safe as a plain value.

#include <filesystem>
#include <string>

#include "runtime/base/status.h"

namespace ds::cli {

struct DaemonBinary {
  std::filesystem::path path;
  std::string bytes;
  std::string sha256;   // of the bytes, 64 hexadecimal digits
  std::string machine;  // as printed by uname: "Linux x86_64"
  std::string dsrank;   // the dsrank in its folder; "" = none
  std::string file_name() const { return "dsrund-" + sha256.substr(0, 16); }
};

// Reads the dsrund in the folder of this program. kNotFound if there is none.
StatusOr<DaemonBinary> ReadDaemonBinary();

}  // namespace ds::cli
