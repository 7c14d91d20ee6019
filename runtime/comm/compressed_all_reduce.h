#pragma once

// CompressedAllReduce: the mean over ranks at one bit an element, with error feedback: the
// collective of 1-bit Adam, 1-bit LAMB and 0/1 Adam.
//
// Rank w sends the signs of x = buffer + worker error and one scale, |x| / sqrt(n), and keeps the
// difference as its new worker error. Rank r ("server") adds up its W-th part of all ranks' signs
// times scales, divides by W, adds its server error, and compresses the result in the same way for
// everyone. What compression leaves out of one call is in a later one. The sign of 0 is +.
//
// Each buffer has scales of its own, is padded with zeros to a multiple of W * lcm(W, 8) elements
// and its padding takes part, as in DeepSpeed. All buffers travel together: one
// all-to-all, one all-gather, whatever their number. Every rank ends with the same bits.
//
// Memory: 4 bytes an element for the worker error and 4 / W for the server error, in the ledger as
// optimizer state from the first call on.
// In a world of one rank nothing is compressed. Threads: one thread at a time.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/device/memory_ledger.h"

namespace ds::comm {

class CompressedAllReduce {
 public:
  // Borrows both; the ledger may be null.
  CompressedAllReduce(Communicator& world, device::MemoryLedger* ledger);

  // Counts the elements of a buffer of `numel` with its padding.
  std::int64_t PaddedNumel(std::int64_t numel) const;

  // Each buffer becomes about the mean of its ranks' values. Contiguous fp32 on the world's device,
  // in every call as many and as large as in the first one since the errors were forgotten.
  // Collective.
  void Average(const std::vector<at::Tensor>& buffers);

  // The next call starts without errors, as the first one does.
  void ForgetErrors();

 private:
  // One buffer in the errors and in a row of bits.
  struct BufferLayout {
    std::int64_t numel = 0;
    std::int64_t padded = 0;         // all of it: W parts
    std::int64_t worker_offset = 0;  // in worker_error_
    std::int64_t server_offset = 0;  // in server_error_; an eighth of it in a row of bits
    std::int64_t part = 0;           // elements of one rank's part
  };

  void LayOutBuffers(const std::vector<at::Tensor>& buffers);
  // Makes what goes to each rank: [W, row], a row being the bits of all buffers, then their scales.
  at::Tensor CompressForServers(const std::vector<at::Tensor>& buffers);
  // Compresses the mean of this rank's parts into one row.
  at::Tensor CompressMean(const at::Tensor& received);
  void Expand(const at::Tensor& rows, const std::vector<at::Tensor>& buffers) const;
  // The scales of each row: [W, buffers].
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
