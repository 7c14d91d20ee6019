#include "cli/remote/remote_target.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>

#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

std::string ValueOf(const HostEntry& entry, const char* key) {
  const auto found = entry.keys.find(key);
  return found == entry.keys.end() ? "" : found->second;
}

std::string WithHome(const std::string& path) {
  return path.starts_with("~/") ? FindHomeDirectory() + path.substr(1) : path;
}

}  // namespace

std::string FindHomeDirectory() {
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return home;
  std::array<char, 16384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) != 0) return "/";
  return found == nullptr ? "/" : found->pw_dir;
}

StatusOr<RemoteTarget> MakeRemoteTarget(const HostEntry& entry, int default_port) {
  RemoteTarget target{.name = entry.name};
  const std::size_t at = entry.name.rfind('@');
  target.host = at == std::string::npos ? entry.name : entry.name.substr(at + 1);
  target.user = ValueOf(entry, "user");
  if (at != std::string::npos) {
    const std::string user = entry.name.substr(0, at);
    if (!target.user.empty() && target.user != user) {
      return InvalidArgumentError("host '" + entry.name + "': user=" + target.user +
                                  " contradicts its name");
    }
    target.user = user;
  }
  target.address = ValueOf(entry, "address");
  const std::string port = ValueOf(entry, "port");
  // The hostfile's parser has checked that it is a number.
  target.port = port.empty() ? default_port : ParseNumber<int>(port).value();
  target.identity = WithHome(ValueOf(entry, "identity"));
  target.host_keys = ListHostKeys(entry);
  std::istringstream words(ValueOf(entry, "exec"));
  for (std::string word; words >> word;) target.wrapper.push_back(word);
  return target;
}

}  // namespace ds::cli
