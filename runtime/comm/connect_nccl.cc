#include "runtime/comm/connect_nccl.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "runtime/comm/control_store.h"

namespace ds::comm {
namespace {

// Every rank's text of at most so many bytes.
std::vector<std::string> ShareTexts(const std::string& mine, Communicator& control) {
  constexpr std::int64_t kLongest = 64;
  const at::Tensor input = at::zeros({kLongest}, at::kByte);
  const at::Tensor all = at::zeros({kLongest * control.size()}, at::kByte);
  std::memcpy(input.mutable_data_ptr(), mine.data(),
              std::min<std::size_t>(mine.size(), kLongest - 1));
  control.AllGather(all, input, "the GPU of each rank");
  std::vector<std::string> texts;
  for (int rank = 0; rank < control.size(); ++rank) {
    texts.emplace_back(static_cast<const char*>(all.const_data_ptr()) + rank * kLongest);
  }
  return texts;
}

// NCCL among the ranks of `control`.
c10::intrusive_ptr<c10d::Backend> MakeNccl(const device::CudaPlugin& cuda,
                                           std::chrono::milliseconds timeout,
                                           Communicator& control) {
  const auto store = c10::make_intrusive<ControlStore>(&control);
  auto backend =
      cuda.MakeNccl(store, {.rank = control.rank(), .size = control.size(), .timeout = timeout});
  store->EndMeeting();
  return backend;
}

}  // namespace

Status CheckGpusDiffer(const std::vector<std::string>& gpus) {
  std::map<std::string_view, std::size_t> seen;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    const auto [first, is_new] = seen.try_emplace(gpus[rank], rank);
    if (is_new) continue;
    return FailedPreconditionError("rank " + std::to_string(first->second) + " and rank " +
                                   std::to_string(rank) + " have one GPU, " + gpus[rank] +
                                   ", and NCCL needs one for each: start at most one rank per GPU");
  }
  return OkStatus();
}

StatusOr<std::string> NameInterfaceForNccl(const std::vector<LocalAddress>& all,
                                           const std::string& wanted) {
  DS_ASSIGN_OR_RETURN(const std::vector<LocalAddress> chosen, ChooseAddresses(all, wanted));
  return "=" + chosen.front().interface;  // without the sign NCCL takes it for a prefix
}

StatusOr<std::unique_ptr<Communicator>> ConnectNccl(std::unique_ptr<Communicator> control,
                                                    const device::RankDevice& device,
                                                    std::chrono::milliseconds timeout) {
  try {
    const std::string gpu = device.cuda->DeviceId(device.device.index());
    DS_RETURN_IF_ERROR(CheckGpusDiffer(ShareTexts(gpu, *control)));
    Communicator::MakeBackend make = [cuda = device.cuda, timeout](Communicator& members) {
      return MakeNccl(*cuda, timeout, members);
    };
    auto backend = make(*control);
    return std::make_unique<Communicator>(std::move(backend), device.device, std::move(control),
                                          std::move(make));
  } catch (const c10::Error& error) {
    return UnavailableError(std::string("starting NCCL: ") + error.what_without_backtrace());
  }
}

}  // namespace ds::comm
