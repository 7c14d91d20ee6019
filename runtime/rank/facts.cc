#include "runtime/rank/facts.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <thread>

#include "runtime/device/rank_device.h"

namespace ds::rank {

nlohmann::ordered_json Facts(const device::IsaReport& isa) {
  nlohmann::ordered_json cuda = {{"plugin", false}, {"devices", 0}};
  if (const auto plugin = device::LoadCudaPlugin(); plugin.ok()) {
    cuda = {{"plugin", true},
            {"devices", (*plugin)->DeviceCount()},
            {"cuda", (*plugin)->CudaVersion()},
            {"nccl", (*plugin)->NcclVersion()}};
  } else {
    cuda["reason"] = plugin.status().message();
  }
  return {
      {"dsrun", DS_VERSION},
      {"libtorch", TORCH_VERSION},
      {"compiler", __VERSION__},
      {"cpu_capability", at::get_cpu_capability()},
      {"threads", at::get_num_threads()},
      {"cores", std::thread::hardware_concurrency()},
      {"amx", {{"advertised", isa.amx_advertised}, {"faults", isa.amx_faults}}},
      {"onednn_max_cpu_isa", isa.onednn_limit},
      {"cuda", cuda},
  };
}

}  // namespace ds::rank
