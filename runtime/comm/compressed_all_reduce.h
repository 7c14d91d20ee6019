#pragma once

// CompressedAllReduce: an averaging all-reduce at one bit per element, with error feedback. 1-bit
// Adam, 1-bit LAMB and 0/1 Adam use it.
//
// Rank w sends the signs of x = buffer + worker error and one scale, |x| / sqrt(n), and keeps the
// difference as its new worker error. Rank r (the "server") adds up its W-th part of all ranks'
// signs times scales, divides by W and adds its server error. It compresses the result in the same
// way and sends it to all ranks. The error of one call is added in a later call. The sign of 0 is
// +.
//
// Each buffer has its own scales. It is padded with zeros to a multiple of W * lcm(W, 8) elements,
// and the padding takes part, as in DeepSpeed. All buffers share one all-to-all and one all-gather.
// Every rank ends with the same bits.
//
// Memory: 4 bytes per element for the worker error and 4 / W for the server error. The ledger
// counts both as optimizer state from the first call on. In a world of one rank nothing is
// compressed. Not thread-safe.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/device/memory_ledger.h"

namespace ds::comm {

class CompressedAllReduce {
 public:
  // `ledger` may be null. Both objects must outlive this object.
  CompressedAllReduce(Communicator& world, device::MemoryLedger* ledger);

  // Returns the number of elements of a buffer of `numel` elements with its padding.
  std::int64_t PaddedNumel(std::int64_t numel) const;

  // Replaces each buffer by the approximate mean of the ranks' values. Buffers are contiguous fp32
  // tensors on the world's device. Their number and sizes must stay the same in all
  // calls until ForgetErrors. Collective: all ranks call it.
  void Average(const std::vector<at::Tensor>& buffers);

  // Drops both errors, so the next call starts like the first call.
  void ForgetErrors();

 private:
  // Position of one buffer in the errors and in a row of bits.
  struct BufferLayout {
    std::int64_t numel = 0;
    std::int64_t padded = 0;         // all W parts
    std::int64_t worker_offset = 0;  // in worker_error_
    std::int64_t server_offset = 0;  // in server_error_; one eighth of this in a row of bits
    std::int64_t part = 0;           // elements of one rank's part
  };

  void LayOutBuffers(const std::vector<at::Tensor>& buffers);
  // Returns the data for each rank: [W, row]. A row holds the bits of all buffers, then their
  // scales.
  at::Tensor CompressForServers(const std::vector<at::Tensor>& buffers);
  // Compresses the mean of this rank's parts into one row.
  at::Tensor CompressMean(const at::Tensor& received);
  void Expand(const at::Tensor& rows, const std::vector<at::Tensor>& buffers) const;
  // Returns the scales of each row: [W, buffers].
  at::Tensor ScalesOf(const at::Tensor& rows) const;

  Communicator& world_;
  device::MemoryLedger* ledger_;
  std::vector<BufferLayout> layouts_;
  std::int64_t bit_bytes_ = 0;  // of a row
  at::Tensor worker_error_;
  at::Tensor server_error_;
  device::LedgerEntry entry_;
};

}  // namespace ds::comm
