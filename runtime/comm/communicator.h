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
// afterwards. Threads: one thread at a time. Lifetimes: destroying a Communicator leaves the group;
// peers still waiting for this rank get an error instead of hanging.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/comm/shm/call_signature.h"

namespace c10d {
class Backend;
}

namespace ds::comm {

class HostBackend;

class Communicator {
 public:
  // `device` is where the backend wants its tensors. `control` connects the same ranks on the host
  // backend, where this one's is another.
  explicit Communicator(c10::intrusive_ptr<c10d::Backend> backend, c10::Device device = c10::kCPU,
                        std::unique_ptr<Communicator> control = nullptr);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  c10::Device device() const { return device_; }
  const c10::intrusive_ptr<c10d::Backend>& backend() const { return backend_; }

  // Carries what ranks tell each other (small numbers, verdicts, texts), so that it waits for no
  // device. Its tensors lie on its own device(). This group itself where there is no other.
  Communicator& control() { return control_ ? *control_ : *this; }

  // `tag` says what a call is about: CPU ranks whose calls are equal but for it get an error, and
  // do not mix what belongs to different layers.

  // In place.
  void AllReduce(const at::Tensor& tensor, ReduceOp op, std::string_view tag = {});
  // output [W*n] = the inputs [n] in rank order. `input` may be this rank's part of `output`.
  void AllGather(const at::Tensor& output, const at::Tensor& input, std::string_view tag = {});
  // output [n] = this rank's part of the reduced inputs [W*n]; it may be that part of `input`.
  void ReduceScatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                     std::string_view tag = {});
  void Broadcast(const at::Tensor& tensor, int root, std::string_view tag = {});
  // Only the root's tensor changes.
  void Reduce(const at::Tensor& tensor, int root, ReduceOp op);
  // `outputs`: one tensor per rank on the root, empty elsewhere; shaped as each rank's `input`.
  void Gather(std::vector<at::Tensor> outputs, const at::Tensor& input, int root);
  // `inputs`: one tensor per rank on the root, empty elsewhere.
  void Scatter(const at::Tensor& output, std::vector<at::Tensor> inputs, int root);
  // Part r of `input` goes to rank r, part r of `output` comes from it. Equal parts of dimension 0
  // unless the splits (rows per rank) say otherwise.
  void AllToAll(const at::Tensor& output, const at::Tensor& input,
                std::vector<std::int64_t> output_splits = {},
                std::vector<std::int64_t> input_splits = {});
  void Barrier();

  // Matched in order between one pair of ranks. Send may block until the peer receives; between CPU
  // ranks several may send to each other before any of them receives.
  void Send(const at::Tensor& tensor, int peer);
  void Recv(const at::Tensor& tensor, int peer);

 private:
  void TagNextCall(std::string_view tag);

  c10::intrusive_ptr<c10d::Backend> backend_;
  HostBackend* host_;  // backend_, where it is one
  c10::Device device_;
  std::unique_ptr<Communicator> control_;
};

// Ranks as threads of this process: entry r belongs to rank r's thread. The same algorithms as
// between processes, over private memory.
std::vector<std::unique_ptr<Communicator>> MakeLocalWorld(int size);

}  // namespace ds::comm
