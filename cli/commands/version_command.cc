#include <absl/base/config.h>
#include <ares_version.h>
#include <google/protobuf/stubs/common.h>
#include <grpcpp/version_info.h>
#include <libssh/libssh.h>
#include <openssl/crypto.h>
#include <spdlog/version.h>
#include <zlib.h>

#include <CLI/Version.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/command_table.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {
namespace {

std::string Dotted(int major, int minor, int patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

#ifndef DS_RE2_VERSION
#define DS_RE2_VERSION "unknown"
#endif

// The libraries in dsrun and dsrund. All except RE2 report their own version.
std::vector<std::pair<std::string, std::string>> LinkedLibraries() {
  return {
      {"Abseil", std::to_string(ABSL_LTS_RELEASE_VERSION) + "." +
                     std::to_string(ABSL_LTS_RELEASE_PATCH_LEVEL)},
      {"c-ares", ARES_VERSION_STR},
      {"CLI11", CLI11_VERSION},
      {"gRPC", GRPC_CPP_VERSION_STRING " with its upb and address_sorting"},
      {"libssh", ::ssh_version(0)},
      {"nlohmann-json", Dotted(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                               NLOHMANN_JSON_VERSION_PATCH)},
      {"OpenSSL", ::OpenSSL_version(OPENSSL_VERSION)},
      {"Protobuf", google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION)},
      {"RE2", DS_RE2_VERSION},
      {"spdlog", Dotted(SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH)},
      {"zlib", ZLIB_VERSION},
  };
}

}  // namespace

StatusOr<int> VersionCommand(const Invocation&) {
  constexpr std::size_t kNameWidth = 16;
  std::cout << "dsrun " << DS_VERSION << "\nbuilt with\n";
  for (auto& [name, version] : LinkedLibraries()) {
    std::cout << "  " << name << std::string(kNameWidth - name.size(), ' ') << version << "\n";
  }
  std::cout << std::flush;
  return kExitOk;
}

}  // namespace ds::cli
