#pragma once

// The names that certificates give the two ends of a job's channel between hosts. Each is the DNS
// entry of the certificate's subjectAltName: TLS checks the daemon's for the controller, and the
// daemon compares the controller's with what it expects.
//
// Pure.

#include <string>

namespace dsrun::v1 {

inline std::string ControllerPeerName(const std::string& job_id) {
  return "controller." + job_id + ".dsrun";
}

// `host_index` is the host's place in the plan.
inline std::string DaemonPeerName(const std::string& job_id, int host_index) {
  return "daemon-" + std::to_string(host_index) + "." + job_id + ".dsrun";
}

}  // namespace dsrun::v1
