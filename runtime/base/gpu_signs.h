#pragma once

// GpuSigns predicts whether a rank with a free choice of device will find a GPU, without loading a
// CUDA library (a third of a second, hundreds of megabytes). A rank makes the same checks before it
// loads the libraries.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ds {

inline constexpr char kCudaPluginFile[] = "libdsrun_cuda.so";

// Returns the paths at which the program `dsrank` looks for its CUDA plugin before it asks the
// dynamic linker.
std::vector<std::filesystem::path> ListCudaPluginPaths(const std::filesystem::path& dsrank);

// Returns true when a device file of the NVIDIA driver exists, including WSL's. Looks under `root`,
// which is "/" except in tests.
bool HasNvidiaDriver(const std::filesystem::path& root = "/");

struct GpuSigns {
  bool driver = false;  // see HasNvidiaDriver
  bool plugin = false;  // dsrank has its CUDA plugin
  // CUDA_VISIBLE_DEVICES of the ranks; nullopt when it is not set.
  std::optional<std::string> visible_devices = {};
};

// Collects the signs. `library_path` is the LD_LIBRARY_PATH of the ranks.
GpuSigns FindGpuSigns(const std::filesystem::path& dsrank, const std::string& library_path,
                      std::optional<std::string> visible_devices);

// Returns true when ranks with these signs use GPUs if they may choose. CUDA ignores the list after
// the first invalid entry, so a list that is empty or begins with "-1" hides every device.
bool FindGpus(const GpuSigns& signs);

}  // namespace ds
