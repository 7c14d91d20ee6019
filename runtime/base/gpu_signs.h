#pragma once

// GpuSigns: what tells, without loading a library of CUDA (a third of a second, hundreds of
// megabytes), whether a rank that takes any device will find a GPU. A rank looks for the same
// before it loads them.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ds {

inline constexpr char kCudaPluginFile[] = "libdsrun_cuda.so";

// Lists where dsrank, this program, looks for its CUDA plugin before it asks the dynamic linker.
std::vector<std::filesystem::path> ListCudaPluginPlaces(const std::filesystem::path& dsrank);

// Tells whether the NVIDIA driver shows itself, WSL's, too. Reads under `root` ("/" but for tests).
bool HasNvidiaDriver(const std::filesystem::path& root = "/");

struct GpuSigns {
  bool driver = false;  // HasNvidiaDriver
  bool plugin = false;  // dsrank has its CUDA plugin
  // CUDA_VISIBLE_DEVICES of the ranks; none: it is not set.
  std::optional<std::string> visible_devices = {};
};

// `library_path`: the ranks' LD_LIBRARY_PATH.
GpuSigns FindGpuSigns(const std::filesystem::path& dsrank, const std::string& library_path,
                      std::optional<std::string> visible_devices);

// Tells whether such ranks compute on GPUs if they may choose. CUDA sees no device behind one that
// is none, so a list that begins with "-1" or is empty hides all.
bool FindGpus(const GpuSigns& signs);

}  // namespace ds
