#pragma once

// Communicator: this rank's view of one process group, over any c10d::Backend.
//
// Every call is collective: all ranks of the group make the same calls in the same order with the
// same shapes and types. Calls block until this rank's tensors may be used again (on CUDA: until
// that is ordered on the current stream). A tensor is contiguous; it may be a view.
//
// Reductions over CPU tensors add in rank order (rank 0 first; bf16 and fp16 accumulate in fp32),
// so AllReduce and ReduceScatter give the same bits for the same element, in every run.
//
// Errors: c10::Error (of the host backend c10::DistNetworkError when it is a peer that is not
// there, usually c10::DistBackendError). The message names the collective and the rank at fault
// when a peer has died or left, or when ranks disagree about the call. The group is unusable
// afterwards, and so are those made from it. Threads: one thread at a time; Abort may be called
// from any. Lifetimes: destroying a Communicator leaves the group; peers still waiting for this
// rank get an error instead of hanging.
//
// The Async calls return at once and go on by themselves, in order: on CPU ranks by a thread that
// the first of them starts, with NCCL on its own stream, behind what the current stream has been
// given. What is called while some are under way runs behind them.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/shm/call_signature.h"
#include "runtime/comm/shm/group_family.h"
#include "runtime/comm/traffic.h"
#include "runtime/comm/work.h"

namespace c10d {
class Backend;
}

namespace ds::comm {

class HostBackend;

class Communicator {
 public:
  // `device` is where the backend wants its tensors. `control`: the same ranks on the host backend,
  // where this one's is another, which ends with it; `make` then makes the backends of groups of
  // some of them.
  using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>(Communicator& control)>;
  explicit Communicator(c10::intrusive_ptr<c10d::Backend> backend, c10::Device device = c10::kCPU,
                        std::unique_ptr<Communicator> control = nullptr, MakeBackend make = {});
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  int rank() const;
  int size() const;
  c10::Device device() const { return device_; }
  bool spans_hosts() const;  // of CPU ranks
  const c10::intrusive_ptr<c10d::Backend>& backend() const { return backend_; }
  // Carries what ranks tell each other, and waits for no device. May be this group itself.
  Communicator& control() { return control_ ? *control_ : *this; }

  // `tag` says what a call is about: CPU ranks whose calls are equal but for it get an error, and
  // do not mix what belongs to different layers.
  void AllReduce(const at::Tensor& tensor, ReduceOp op, std::string_view tag = {});  // in place
  // output [W*n] = the inputs [n] in rank order. `input` may be this rank's part of `output`.
  void AllGather(const at::Tensor& output, const at::Tensor& input, std::string_view tag = {});
  // output [n] = this rank's part of the reduced inputs [W*n]; it may be that part of `input`.
  void ReduceScatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                     std::string_view tag = {});
  void Broadcast(const at::Tensor& tensor, int root, std::string_view tag = {});
  // Only the root's tensor changes.
  void Reduce(const at::Tensor& tensor, int root, ReduceOp op, std::string_view tag = {});
  // `outputs`: one tensor per rank on the root, empty elsewhere; shaped as each rank's `input`.
  void Gather(std::vector<at::Tensor> outputs, const at::Tensor& input, int root,
              std::string_view tag = {});
  // `inputs`: one tensor per rank on the root, empty elsewhere.
  void Scatter(const at::Tensor& output, std::vector<at::Tensor> inputs, int root);
  // Part r of `input` goes to rank r, part r of `output` comes from it. Equal parts of dimension 0
  // unless the splits (rows per rank) say otherwise.
  using Splits = std::vector<std::int64_t>;
  void AllToAll(const at::Tensor& output, const at::Tensor& input, Splits output_splits = {},
                Splits input_splits = {}, std::string_view tag = {});
  void Barrier();

  Work AllReduceAsync(const at::Tensor& tensor, ReduceOp op, std::string_view tag = {});
  Work AllGatherAsync(const at::Tensor& output, const at::Tensor& input, std::string_view tag = {});
  Work ReduceScatterAsync(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                          std::string_view tag = {});
  Work AllToAllAsync(const at::Tensor& output, const at::Tensor& input, Splits output_splits = {},
                     Splits input_splits = {}, std::string_view tag = {});

  // The calls above for every pair (outputs[i], inputs[i]) or tensor, in one round for all: for
  // many small tensors, which CPU ranks copy once more. Those of a reduction have one type.
  using Tensors = std::vector<at::Tensor>;
  void AllReduceMany(const Tensors& tensors, ReduceOp op, std::string_view tag = {});
  void AllGatherMany(const Tensors& outputs, const Tensors& inputs, std::string_view tag = {});
  void ReduceScatterMany(const Tensors& outputs, const Tensors& inputs, ReduceOp op,
                         std::string_view tag = {});

  // Matched in order between one pair of ranks. Send may block until the peer receives; between CPU
  // ranks several may send to each other before any of them receives.
  void Send(const at::Tensor& tensor, int peer, std::string_view tag = {});
  void Recv(const at::Tensor& tensor, int peer, std::string_view tag = {});
  // Does both at once: in a ring or a line, with messages of any size. The tag is of both.
  void SendRecv(const at::Tensor& outgoing, int to, const at::Tensor& incoming, int from,
                std::string_view tag = {});
  // A message that has not come holds up what is called behind it: two directions take
  // SendRecvAsync, or a group each.
  Work SendAsync(const at::Tensor& tensor, int peer, std::string_view tag = {});
  Work RecvAsync(const at::Tensor& tensor, int peer, std::string_view tag = {});
  Work SendRecvAsync(const at::Tensor& outgoing, int to, const at::Tensor& incoming, int from,
                     std::string_view tag = {});

  // The group of `members`, ranks of this one in ascending order, this rank among them, who number
  // themselves by their place in the list. It is made when its name is first asked for, by its
  // members alone: all of them make the same groups in the same order. c10::Error names a rank that
  // has other members under the name. Lives as long as this Communicator.
  Communicator& Group(const std::string& name, const std::vector<int>& members);

  // Ends this group, its control group and all that were made of them: what any rank waits for in
  // them, and what it calls later, fails at once, with this rank's number and `reason` but on NCCL.
  void Abort(std::string_view reason);
  Absence absence() const;  // of ranks that this one has missed in the first error that came of it
  // Tell of this group, its control group and sub-groups what has gone through them, from any
  // thread, and this rank's part of the memory that CPU ranks share for them.
  Traffic traffic() const;
  std::size_t shared_bytes() const;

 private:
  struct Launch;  // the calls below their two forms, blocking and not
  std::unique_ptr<Communicator> MakeGroup(const std::string& name, const std::vector<int>& members);

  c10::intrusive_ptr<c10d::Backend> backend_;
  HostBackend* host_;  // backend_, where it is one
  c10::Device device_;
  std::unique_ptr<Communicator> control_;
  MakeBackend make_;
  std::shared_ptr<TrafficCounters> counters_;  // of control_ and groups_, too
  std::vector<int> members_;                   // of a group: their ranks where it was made
  std::map<std::string, std::unique_ptr<Communicator>> groups_;
};

}  // namespace ds::comm
