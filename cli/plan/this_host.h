#pragma once

// What dsrun knows of the machine it runs on without asking a daemon.
//
// Threads: plain values; the probes are safe to call concurrently.

#include <string>
#include <string_view>
#include <vector>

namespace ds::cli {

struct ThisHost {
  std::string name;                // as gethostname(2) says
  std::vector<std::string> names;  // every name and address that means this machine
  int gpu_count = 0;               // NVIDIA devices the kernel shows
  int numa_node_count = 1;
  // One logical cpu of every physical core this process may use, ascending.
  std::vector<int> cores;

  // "localhost", any 127.0.0.0/8 address, "::1", the host's own name (with or without its domain)
  // and its addresses.
  bool Is(std::string_view host) const;
};

ThisHost ProbeThisHost();

}  // namespace ds::cli
