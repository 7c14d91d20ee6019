// Feeds arbitrary bytes to what the daemon makes of a controller's messages, up to the point where
// a process would be started: preflight, a rank's command, the grace of a stop, the credentials of
// a daemon on the network. The first byte chooses.

#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/inspect/preflight.h"
#include "daemon/job/generation.h"
#include "daemon/network/check_credentials.h"
#include "daemon/ranks/rank_command.h"
#include "proto/message_line.h"
#include "runtime/base/check.h"

namespace {

namespace v1 = ::dsrun::v1;

void CheckCommand(const ds::daemon::RankCommand& command) {
  DS_CHECK(!command.executable.empty() && !command.argv.empty());
  for (const std::string& text : command.argv) DS_CHECK(text.find('\0') == std::string::npos);
  for (const std::string& entry : command.environment) {
    DS_CHECK(entry.find('\0') == std::string::npos && entry.find('=') != 0);
  }
}

void TryLaunch(const std::string& bytes) {
  v1::LaunchRequest request;
  if (!request.ParseFromString(bytes)) return;
  const ds::daemon::HostContext host{{"PATH=/bin", "A=1"}, "/bin/true", "/job"};
  for (int i = 0; i < request.ranks_size() && i < 8; ++i) {
    const auto command = ds::daemon::MakeRankCommand(request, i, host);
    if (command.ok()) CheckCommand(*command);
  }
  static_cast<void>(ds::daemon::ToDuration("grace", request.grace_seconds()).ok());
}

void TryPrepare(const std::string& bytes) {
  v1::PrepareRequest request;
  if (!request.ParseFromString(bytes)) return;
  const ds::daemon::PreflightContext context{{}, "", "/bin", ""};
  DS_CHECK(!ds::daemon::RunPreflight(request, context).empty());
}

void TryListen(const std::string& line) {
  v1::ListenRequest request;
  if (!v1::DecodeLine(line, &request)) return;
  DS_CHECK(v1::DecodeLine(v1::EncodeLine(request), &request));
  static_cast<void>(ds::daemon::ToDuration("lease", request.lease_seconds(), 1).ok());
  static_cast<void>(ds::daemon::CheckCredentials(request.credentials(), 1'795'000'000).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 == 0) TryLaunch(bytes);
  if (data[0] % 3 == 1) TryPrepare(bytes);
  if (data[0] % 3 == 2) TryListen(bytes);
  return 0;
}
