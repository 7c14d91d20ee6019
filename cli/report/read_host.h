#pragma once

// Reads the facts of a host from its file system (/proc, /sys, /etc, /dev/shm) without starting or
// changing anything. What cannot be read stays empty; nothing here fails.

#include <filesystem>

#include "cli/report/host_facts.h"

namespace ds::cli {

struct HostSources {
  std::filesystem::path root = "/";     // tests give a folder of their own
  std::filesystem::path run_directory;  // where jobs would write
};

// Everything but HostFacts::offload and dsrank.
HostFacts ReadHost(const HostSources& sources);

// The parts of it that concern devices (read_devices.cc).
void ReadGpus(const std::filesystem::path& root, HostFacts* facts);
void ReadNetwork(const std::filesystem::path& root, HostFacts* facts);

}  // namespace ds::cli
