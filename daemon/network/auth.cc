#include "daemon/network/auth.h"

#include <grpc/grpc_security_constants.h>

#include <vector>

namespace ds::daemon {

Status CheckCaller(const grpc::AuthContext& caller, const std::string& expected) {
  if (!caller.IsPeerAuthenticated()) {
    return Status(StatusCode::kUnauthenticated, "the caller has shown no certificate");
  }
  const std::vector<grpc::string_ref> names =
      caller.FindPropertyValues(GRPC_PEER_DNS_PROPERTY_NAME);
  if (names.size() == 1 && names[0] == expected) return OkStatus();
  const std::string name = names.empty() ? "nobody" : std::string(names[0].data(), names[0].size());
  return PermissionDeniedError("only " + expected + " may call this daemon, not " + name);
}

}  // namespace ds::daemon
