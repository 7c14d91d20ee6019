#pragma once

// Reads the facts of a host from its files (/proc, /sys, /etc, /dev). Starts and changes nothing.
// Unreadable facts stay empty; these functions do not fail.
//
// ReadFolder asks a file system, which may not answer. The others read the kernel's own.
// Thread-safe. Each function fills in facts that no other one does. `root` differs from "/" only in
// tests.

#include <cstdint>
#include <filesystem>
#include <string>

#include "proto/host_facts.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

// A limit of LimitFacts that does not limit.
inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

// Reads the facts that every job needs before it starts: the identity of the machine, usable cores,
// /dev/shm, limits, and whether there are GPUs. Takes a moment only.
void ReadResources(const std::filesystem::path& root, v1::HostFacts* facts);

// Reads the rest: system, processor, memory and network.
void ReadDescription(const std::filesystem::path& root, v1::HostFacts* facts);

// Reads `driver_gpus`, the models of the GPUs, and the version of the driver (read_devices.cc).
void ReadGpus(const std::filesystem::path& root, v1::HostFacts* facts);

// Parts of ReadDescription (read_devices.cc). The addresses of interfaces are this machine's own.
void ReadNetwork(const std::filesystem::path& root, v1::HostFacts* facts);
void ReadAddresses(v1::HostFacts* facts);

// Looks at a folder that jobs use.
v1::FolderFacts ReadFolder(const std::string& path);

// Returns the folder itself, or its nearest existing parent. It may be a path that cannot be looked
// at for another reason than that it is missing, which ReadFolder then reports.
std::filesystem::path FindNearestExisting(const std::filesystem::path& path);

}  // namespace ds::daemon
