#include "runtime/comm/connect_nccl.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/host_backend.h"

namespace ds::comm {
namespace {

// Returns rank 0's bytes on all ranks.
std::vector<std::uint8_t> ShareBytes(std::vector<std::uint8_t> bytes, const std::string& key,
                                     Communicator& control) {
  const std::string tag = "the meeting at " + key;
  const at::Tensor length = at::empty({1}, at::kLong);
  *length.mutable_data_ptr<std::int64_t>() = static_cast<std::int64_t>(bytes.size());
  control.Broadcast(length, /*root=*/0, tag);
  bytes.resize(static_cast<std::size_t>(*length.const_data_ptr<std::int64_t>()));
  const at::Tensor content = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) std::memcpy(content.mutable_data_ptr(), bytes.data(), bytes.size());
  control.Broadcast(content, /*root=*/0, tag);
  if (!bytes.empty()) std::memcpy(bytes.data(), content.const_data_ptr(), bytes.size());
  return bytes;
}

// ControlStore: the rendezvous store of a group on GPUs, over the control group of the same ranks
// on CPUs. It needs no open port and looks up no name.
//
// NCCL's rank 0 puts an identifier into the store of its group and the others read it. Both happen
// while the group connects, on the thread that makes it, at the same point on all ranks, so the
// value is broadcast. Other values that LibTorch stores (its watchdog's notes, from its own
// threads) stay in this process.
//
// Thread-safe; values travel on the thread that made the store. Errors: those of the control group.
class ControlStore : public c10d::HashStore {
 public:
  using Value = std::vector<std::uint8_t>;

  // `control` is used until EndMeeting.
  explicit ControlStore(Communicator* control) : control_(control) {}

  // Ends the use of the control group: later values stay local.
  void EndMeeting() { control_ = nullptr; }

  void set(const std::string& key, const Value& value) override;
  Value get(const std::string& key) override;

 private:
  bool IsMeeting() const {
    return std::this_thread::get_id() == meeting_thread_ && control_ != nullptr;
  }

  const std::thread::id meeting_thread_ = std::this_thread::get_id();
  Communicator* control_;  // used only by the thread that made the store
};

void ControlStore::set(const std::string& key, const Value& value) {
  if (IsMeeting() && control_->rank() == 0) ShareBytes(value, key, *control_);
  HashStore::set(key, value);
}

ControlStore::Value ControlStore::get(const std::string& key) {
  if (!IsMeeting() || control_->rank() == 0) return HashStore::get(key);
  Value value = ShareBytes({}, key, *control_);
  HashStore::set(key, value);
  return value;
}

// Returns every rank's text, truncated to 63 bytes.
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

// Connects the ranks of `control` with NCCL.
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
  std::string names = "=";  // without "=" NCCL treats names as prefixes
  for (int rail = 0; rail < CountRails(chosen); ++rail) {
    const auto of_rail = std::find_if(chosen.begin(), chosen.end(),
                                      [&](const LocalAddress& each) { return each.rail == rail; });
    names += (rail == 0 ? "" : ",") + of_rail->interface;
  }
  return names;
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
    // A rank that waits in NCCL does not wait in the control group, but must still detect its end.
    dynamic_cast<HostBackend&>(*control->backend()).WatchForEnd();
    return std::make_unique<Communicator>(std::move(backend), device.device, std::move(control),
                                          std::move(make));
  } catch (const c10::Error& error) {
    return UnavailableError(std::string("starting NCCL: ") + error.what_without_backtrace());
  }
}

}  // namespace ds::comm
