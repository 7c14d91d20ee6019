#pragma once

// ThisHost: facts that dsrun knows of the machine it runs on without asking a daemon.
//
// Threads: plain values; the probes are safe to call concurrently.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/process/cpu_topology.h"

namespace ds::cli {

struct ThisHost {
  std::string name;                // as gethostname(2) says
  std::vector<std::string> names;  // every name that means this machine; with Probe::addresses
                                   // also its addresses
  int gpu_count = 0;               // NVIDIA devices the kernel shows
  int numa_node_count = 1;
  CpuTopology topology;  // with Probe::cores

  // "localhost", any 127.0.0.0/8 address, "::1", the host's own name (with or without its domain)
  // and, where they were asked for, its addresses.
  bool IsNamed(std::string_view host) const;
};

// The facts that are asked for only where they matter: it takes a file per cpu, and a dialogue with
// the kernel.
struct Probe {
  bool cores = false;
  bool addresses = false;
};
ThisHost ProbeThisHost(const Probe& probe);

}  // namespace ds::cli
