#pragma once

// The certificate names of the two ends of a job's channel between hosts. Each is the DNS entry of
// the certificate's subjectAltName. TLS checks the daemon's name for the controller, and the daemon
// compares the controller's name with the expected one.
//
// Pure.

#include <string>

namespace dsrun::v1 {

inline std::string ControllerPeerName(const std::string& job_id) {
  return "controller." + job_id + ".dsrun";
}

// `host_index` is the host's index in the plan.
inline std::string DaemonPeerName(const std::string& job_id, int host_index) {
  return "daemon-" + std::to_string(host_index) + "." + job_id + ".dsrun";
}

}  // namespace dsrun::v1
