#pragma once

// Preflight: what on this host would stop a job, found before any rank is started.
//
// Reads the host, changes nothing. Each check is one function and one finding; a finding that is
// not OK says what was found and what to do.

#include <filesystem>
#include <string>
#include <vector>

#include "daemon/host/host_probe.h"
#include "proto/dsrun.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

struct PreflightContext {
  HostResources facts;
  std::filesystem::path dsrank;  // empty when this host has none
  std::string search_path;       // the daemon's own PATH
  std::string library_path;      // the daemon's own LD_LIBRARY_PATH
};

std::vector<v1::Finding> RunPreflight(const v1::PrepareRequest& request,
                                      const PreflightContext& context);

v1::Finding MakeFinding(v1::Finding::Level level, std::string name, std::string message,
                        std::string hint = "");

}  // namespace ds::daemon
