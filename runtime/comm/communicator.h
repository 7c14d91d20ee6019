#pragma once

// Communicator: this rank's view of one process group, over any c10d::Backend.
//
// Every call is collective: all ranks of the group make the same calls in the same order, with the
// same shapes and types. Calls block until this rank's tensors may be used again (on CUDA: until
// that is ordered on the current stream). Tensors must be contiguous; views are allowed.
//
// Reductions over CPU tensors add in rank order (rank 0 first; bf16 and fp16 accumulate in fp32),
// so AllReduce and ReduceScatter give the same bits for the same element, in every run.
//
// Errors: calls throw c10::Error. The host backend throws c10::DistNetworkError when a peer is
// missing, and usually c10::DistBackendError otherwise. The message names the collective, and the
// rank at fault when a peer has died or left or when ranks disagree about the call. After an error
// this group and all groups made from it are unusable.
//
// Not thread-safe, except that Abort may be called from any thread. Destroying a Communicator
// leaves the group; peers that still wait for this rank get an error instead of hanging.
//
// The Async calls return at once and run in the order in which they were issued. On CPU ranks a
// thread runs them; the first Async call starts it. NCCL runs them on its own stream, after the
// work already queued on the current stream. Calls issued while Async calls are pending run after
// them.

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
  // `device` is the device on which the backend expects its tensors. `control` connects the same
  // ranks through the host backend, when `backend` is another backend; the two end together. `make`
  // then creates the backends of subgroups.
  using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>(Communicator& control)>;
  explicit Communicator(c10::intrusive_ptr<c10d::Backend> backend, c10::Device device = c10::kCPU,
                        std::unique_ptr<Communicator> control = nullptr, MakeBackend make = {});
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  int rank() const;
  int size() const;
  c10::Device device() const { return device_; }
  bool spans_hosts() const;  // for CPU ranks
  const c10::intrusive_ptr<c10d::Backend>& backend() const { return backend_; }
  // Returns the group that carries control data between ranks. It never waits for a device. May be
  // this group itself.
  Communicator& control() { return control_ ? *control_ : *this; }

  // `tag` identifies the purpose of a call. CPU ranks compare tags: calls that differ only in the
  // tag are an error, so data of different layers is never mixed.
  void AllReduce(const at::Tensor& tensor, ReduceOp op, std::string_view tag = {});  // in place
  // Concatenates the inputs [n] in rank order into output [W*n]. `input` may alias this rank's part
  // of `output`.
  void AllGather(const at::Tensor& output, const at::Tensor& input, std::string_view tag = {});
  // Writes this rank's part of the reduced inputs [W*n] to output [n]. `output` may alias that part
  // of `input`.
  void ReduceScatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                     std::string_view tag = {});
  void Broadcast(const at::Tensor& tensor, int root, std::string_view tag = {});
  // Only the root's tensor changes.
  void Reduce(const at::Tensor& tensor, int root, ReduceOp op, std::string_view tag = {});
  // `outputs` holds one tensor per rank on the root, shaped like that rank's `input`; it is empty
  // elsewhere.
  void Gather(std::vector<at::Tensor> outputs, const at::Tensor& input, int root,
              std::string_view tag = {});
  // `inputs` holds one tensor per rank on the root; it is empty elsewhere.
  void Scatter(const at::Tensor& output, std::vector<at::Tensor> inputs, int root);
  // Sends part r of `input` to rank r and receives part r of `output` from it. Dimension 0 is split
  // into equal parts unless the splits give the rows per rank.
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

  // These run the calls above for every pair (outputs[i], inputs[i]), or for every tensor, in one
  // round. They suit many small tensors; CPU ranks make one extra copy. All tensors of a reduction
  // have the same type.
  using Tensors = std::vector<at::Tensor>;
  void AllReduceMany(const Tensors& tensors, ReduceOp op, std::string_view tag = {});
  void AllGatherMany(const Tensors& outputs, const Tensors& inputs, std::string_view tag = {});
  void ReduceScatterMany(const Tensors& outputs, const Tensors& inputs, ReduceOp op,
                         std::string_view tag = {});

  // Messages between two ranks are matched in order. Send may block until the peer receives. CPU
  // ranks may all send to each other before any of the ranks receives.
  void Send(const at::Tensor& tensor, int peer, std::string_view tag = {});
  void Recv(const at::Tensor& tensor, int peer, std::string_view tag = {});
  // Sends and receives at the same time, so a ring or a line of ranks works with messages of any
  // size. `tag` applies to both messages.
  void SendRecv(const at::Tensor& outgoing, int to, const at::Tensor& incoming, int from,
                std::string_view tag = {});
  // A pending message delays all calls issued after it. For traffic in two directions use
  // SendRecvAsync, or one group per direction.
  Work SendAsync(const at::Tensor& tensor, int peer, std::string_view tag = {});
  Work RecvAsync(const at::Tensor& tensor, int peer, std::string_view tag = {});
  Work SendRecvAsync(const at::Tensor& outgoing, int to, const at::Tensor& incoming, int from,
                     std::string_view tag = {});

  // Returns the group of `members`: ranks of this group in ascending order, including this rank.
  // Their ranks in the new group are their indexes in the list. The group is created on the first
  // call with `name`. Collective among its members only: they create the same groups in the same
  // order. Throws c10::Error that names a rank with other members under this name. The group lives
  // as long as this Communicator.
  Communicator& Group(const std::string& name, const std::vector<int>& members);

  // Ends this group, its control group and all groups made from them. Pending and later calls of
  // any rank in these groups fail at once. Their errors carry this rank's number and `reason`,
  // except on NCCL.
  void Abort(std::string_view reason);
  Absence absence() const;  // the ranks missed in the first error caused by missing ranks
  // Return the traffic of this group, its control group and its subgroups so far, and this rank's
  // share of the shared memory that CPU ranks allocate for them. Thread-safe.
  Traffic traffic() const;
  std::size_t shared_bytes() const;

 private:
  struct Launch;  // implements the blocking and the Async form of a call
  std::unique_ptr<Communicator> MakeGroup(const std::string& name, const std::vector<int>& members);

  c10::intrusive_ptr<c10d::Backend> backend_;
  HostBackend* host_;  // backend_ if it is a HostBackend, else null
  c10::Device device_;
  std::unique_ptr<Communicator> control_;
  MakeBackend make_;
  std::shared_ptr<TrafficCounters> counters_;  // shared with control_ and groups_
  std::vector<int> members_;                   // of a subgroup: its ranks in the parent group
  std::map<std::string, std::unique_ptr<Communicator>> groups_;
};

}  // namespace ds::comm
