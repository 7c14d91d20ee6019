#pragma once

// Reads the facts of a host from its file system (/proc, /sys, /etc, /dev/shm). Starts and changes
// nothing. Unreadable facts stay empty; these functions do not fail.

#include <filesystem>

#include "cli/report/host_facts.h"

namespace ds::cli {

struct HostSources {
  std::filesystem::path root = "/";     // tests use a folder of their own
  std::filesystem::path run_directory;  // the folder that jobs would write
};

// Reads all facts except HostFacts::offload and dsrank.
HostFacts ReadHost(const HostSources& sources);

// Read the facts about devices (read_devices.cc). ReadHost calls them.
void ReadGpus(const std::filesystem::path& root, HostFacts* facts);
void ReadNetwork(const std::filesystem::path& root, HostFacts* facts);

}  // namespace ds::cli
