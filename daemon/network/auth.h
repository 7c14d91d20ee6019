#pragma once

// auth: who may call this daemon. Over the unix socket that is whoever can reach it: its folder
// belongs to one user. Over the network TLS has verified that the caller holds a certificate of
// this job's authority; that it is the controller's, and not another host's, is checked here for
// each call.
//
// Pure.

#include <grpcpp/security/auth_context.h>

#include <string>

#include "runtime/base/status.h"

namespace ds::daemon {

// kUnauthenticated without a verified certificate, kPermissionDenied when it names somebody else
// than `expected` (proto/peer_name.h), or more than one.
Status CheckCaller(const grpc::AuthContext& caller, const std::string& expected);

}  // namespace ds::daemon
