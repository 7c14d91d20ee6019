#include "runtime/device/rank_device.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/gpu_signs.h"

namespace ds::device {
namespace {

struct PluginLibrary {
  void* handle = nullptr;
  std::string file;
};

// Returns the reason of the latest dlopen failure on `file`; dlerror's text mostly begins with the
// file.
std::string ExplainOpenFailure(const std::string& file) {
  const std::string reason = dlerror();
  return reason.starts_with(file) ? reason : file + ": " + reason;
}

// Returns the places of the plugin next to this code: next to the program, or, in an extension
// module of Python, next to that, in the package's folder bin, or in bin of the build folder.
StatusOr<std::vector<std::filesystem::path>> ListPluginPaths() {
  Dl_info own = {};
  const bool found = dladdr(kCudaPluginEntry, &own) != 0 && own.dli_fname != nullptr;
  const std::filesystem::path file = found ? own.dli_fname : "";
  if (file.extension() != ".so") {
    DS_ASSIGN_OR_RETURN(const std::filesystem::path program, FindOwnExecutable());
    return ListCudaPluginPaths(program);
  }
  const std::filesystem::path folder = file.parent_path();
  return std::vector{folder / kCudaPluginFile, folder / "bin" / kCudaPluginFile,
                     folder / "../../bin" / kCudaPluginFile};
}

// Returns the same library on every call, once it is loaded.
StatusOr<PluginLibrary> OpenPluginLibrary() {
  DS_ASSIGN_OR_RETURN(std::vector<std::filesystem::path> candidates, ListPluginPaths());
  candidates.emplace_back(kCudaPluginFile);
  std::string tried;
  for (const std::filesystem::path& candidate : candidates) {
    const std::string& file = candidate.native();
    // The library is never unloaded, because LibTorch keeps pointers into it. Its symbols are
    // global because LibTorch's CUDA libraries register themselves with the CPU ones.
    void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle != nullptr) return PluginLibrary{.handle = handle, .file = file};
    tried += (tried.empty() ? "" : "; ") + ExplainOpenFailure(file);
  }
  return NotFoundError("the CUDA plugin cannot be loaded: " + tried);
}

StatusOr<RankDevice> OpenCuda(int local_rank) {
  DS_ASSIGN_OR_RETURN(const CudaPlugin* const cuda, LoadCudaPlugin());
  const int devices = cuda->DeviceCount();
  if (devices == 0) return NotFoundError("no usable GPU is visible to this process");
  if (devices != 1 && local_rank >= devices) {
    return FailedPreconditionError("local rank " + std::to_string(local_rank) +
                                   " has no GPU: only " + std::to_string(devices) +
                                   " are visible; start at most one rank per GPU");
  }
  const int index = devices == 1 ? 0 : local_rank;
  cuda->SelectDevice(index);
  return RankDevice{.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)),
                    .cuda = cuda};
}

}  // namespace

StatusOr<DeviceChoice> DeviceChoiceFromName(std::string_view name) {
  if (name == "auto") return DeviceChoice::kAuto;
  if (name == "cpu") return DeviceChoice::kCpu;
  if (name == "cuda") return DeviceChoice::kCuda;
  return InvalidArgumentError("device \"" + std::string(name) + "\" is not auto, cpu or cuda");
}

StatusOr<const CudaPlugin*> LoadCudaPlugin() {
  DS_ASSIGN_OR_RETURN(const PluginLibrary library, OpenPluginLibrary());
  const auto entry = reinterpret_cast<CudaPluginEntry>(dlsym(library.handle, kCudaPluginEntry));
  const CudaPlugin* const plugin = entry == nullptr ? nullptr : entry(kCudaPluginVersion);
  if (plugin == nullptr) {
    return FailedPreconditionError(library.file +
                                   " belongs to another version of dsrun; rebuild it");
  }
  return plugin;
}

StatusOr<void*> FindInCudaPlugin(const char* name) {
  DS_ASSIGN_OR_RETURN(const PluginLibrary library, OpenPluginLibrary());
  void* const found = dlsym(library.handle, name);
  if (found == nullptr) {
    return FailedPreconditionError(library.file + " has no \"" + name + "\"; rebuild it");
  }
  return found;
}

StatusOr<RankDevice> OpenRankDevice(DeviceChoice choice, int local_rank) {
  switch (choice) {
    case DeviceChoice::kCpu:
      return RankDevice{};
    case DeviceChoice::kCuda: {
      StatusOr<RankDevice> device = OpenCuda(local_rank);
      if (device.ok()) return device;
      return device.status().WithContext(
          "device \"cuda\" was asked for (use --device cpu to run without a GPU)");
    }
    case DeviceChoice::kAuto:
      break;
  }
  if (!HasNvidiaDriver()) return RankDevice{};
  StatusOr<RankDevice> device = OpenCuda(local_rank);
  // Without a plugin or a visible GPU "auto" means the CPU. Too few GPUs is an error: half of the
  // ranks on CPUs would be a surprise.
  if (!device.ok() && device.status().code() == StatusCode::kNotFound) return RankDevice{};
  return device;
}

void Synchronize(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace ds::device
