#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "daemon/inspect/judge.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/counted.h"
#include "runtime/base/parse_number.h"

namespace ds::daemon {
namespace {

std::string SpeedText(const v1::InterfaceFacts& interface) {
  if (!interface.has_megabits_per_second()) return interface.name();
  const std::uint64_t speed = interface.megabits_per_second();
  if (speed < 1000) return fmt::format("{} ({} Mbit/s)", interface.name(), speed);
  return fmt::format("{} ({} Gbit/s)", interface.name(), speed / 1000);
}

// Returns the first device number that this host does not have; "" if there is none. The driver
// checks UUIDs and MIG ids.
std::string FindMissingDevice(const v1::PrepareRequest& request, std::uint32_t devices) {
  for (const std::string& device : request.devices()) {
    const std::optional<std::uint32_t> number = ParseNumber<std::uint32_t>(device);
    if (number.has_value() && *number >= devices) return device;
  }
  return "";
}

std::string DescribeUser(const v1::GpuUser& user, int gpu) {
  std::string text = fmt::format("{} (process {}", user.program(), user.pid());
  if (!user.user().empty()) text += " of " + user.user();
  if (user.has_memory()) text += ", " + ByteSize(user.memory());
  return text + fmt::format(") on GPU {}", gpu);
}

}  // namespace

bool HasNoGpus(const v1::HostFacts& facts) {
  return facts.gpus().empty() && facts.has_gpu_devices() && facts.gpu_devices() == 0 &&
         !facts.has_gpu_driver();
}

v1::Finding JudgeGpus(const v1::HostFacts& facts) {
  const std::string name = "GPUs";
  if (HasNoGpus(facts)) return Ok(name, "none: ranks run on CPU");
  if (facts.gpus().empty()) {
    // Without the number of devices, a part of the facts is missing, which is a finding already.
    if (!facts.has_gpu_devices()) return Ok(name, "unknown");
    return Warn(name, Counted(facts.gpu_devices(), "device") + ", models unknown",
                "the driver lists no GPU: see nvidia-smi and dmesg on this host");
  }
  const std::string& model = facts.gpus(0).model();
  const bool alike = std::all_of(facts.gpus().begin(), facts.gpus().end(),
                                 [&](const v1::GpuFacts& gpu) { return gpu.model() == model; });
  const std::string value =
      fmt::format("{} x {}{}", facts.gpus_size(), model, alike ? "" : " and others");
  if (!facts.has_dsrank() || !facts.dsrank().problem().empty()) return Ok(name, value);
  if (!facts.dsrank().cuda_plugin()) {
    return Warn(name, value,
                fmt::format("dsrank cannot use them ({}); install CUDA and NCCL and build again, "
                            "or use --device cpu",
                            facts.dsrank().cuda_problem()));
  }
  if (facts.dsrank().cuda_devices() < static_cast<std::uint32_t>(facts.gpus_size())) {
    return Warn(name, value,
                fmt::format("LibTorch sees {}: check CUDA_VISIBLE_DEVICES and nvidia-smi",
                            facts.dsrank().cuda_devices()));
  }
  return Ok(name, value);
}

v1::Finding JudgeGpuUsers(const v1::HostFacts& facts) {
  const std::string name = "GPU users";
  if (!facts.gpu_problem().empty()) {
    return Warn(name, "unknown: " + facts.gpu_problem(), "see nvidia-smi on this host");
  }
  std::string users;
  for (int i = 0; i < facts.gpus_size(); ++i) {
    for (const v1::GpuUser& user : facts.gpus(i).users()) {
      users += (users.empty() ? "" : ", ") + DescribeUser(user, i);
    }
  }
  if (users.empty()) return Ok(name, "none");
  return Warn(name, users, "a job has the rest of the memory: end them, or use other GPUs");
}

v1::Finding JudgeDevices(const v1::HostFacts& facts, const v1::PrepareRequest& request) {
  const std::string name = "device";
  const std::string message = std::to_string(facts.gpu_devices()) + " GPUs";
  // Without any GPU the ranks run on the CPU, unless the job requires CUDA.
  if (const std::string missing = FindMissingDevice(request, facts.gpu_devices());
      facts.gpu_devices() > 0 && !missing.empty()) {
    return Fail(name, message + ", and the job requires device " + missing,
                "use fewer slots on this host (slots= in the hostfile, --num_gpus), or others with "
                "--include");
  }
  if (request.device() != v1::PrepareRequest::DEVICE_CUDA || facts.gpu_devices() > 0 ||
      facts.has_gpu_driver()) {
    return Ok(name, message);
  }
  return Fail(name, "CUDA was asked for and this host has no GPU",
              "use --device cpu, or install the NVIDIA driver");
}

v1::Finding JudgeDriver(const v1::HostFacts& facts) {
  if (!facts.gpu_driver().empty()) return Ok("GPU driver", facts.gpu_driver());
  if (HasNoGpus(facts)) return Ok("GPU driver", "none");
  if (facts.gpus().empty() && !facts.has_gpu_devices()) return Ok("GPU driver", "unknown");
  return Warn("GPU driver", "unknown", "/proc/driver/nvidia/version cannot be read");
}

v1::Finding JudgeCuda(const v1::HostFacts& facts) {
  if (!facts.dsrank().cuda().empty()) return Ok("CUDA", facts.dsrank().cuda());
  return Ok("CUDA", HasNoGpus(facts) ? "not used" : "not available to dsrank");
}

v1::Finding JudgeNccl(const v1::HostFacts& facts) {
  if (!facts.dsrank().nccl().empty()) return Ok("NCCL", facts.dsrank().nccl());
  return Ok("NCCL", HasNoGpus(facts) ? "not used" : "not available to dsrank");
}

v1::Finding JudgeNetwork(const v1::HostFacts& facts) {
  std::string value;
  for (const v1::InterfaceFacts& interface : facts.interfaces()) {
    if (!interface.up()) continue;
    value += (value.empty() ? "" : ", ") + SpeedText(interface);
  }
  if (facts.infiniband_devices() > 0) {
    value += fmt::format("{}{} InfiniBand", value.empty() ? "" : ", ", facts.infiniband_devices());
  }
  if (!value.empty()) return Ok("network", value);
  return Warn("network", "no interface is up", "jobs can run on this host alone");
}

}  // namespace ds::daemon
