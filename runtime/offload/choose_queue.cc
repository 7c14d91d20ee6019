#include "runtime/offload/choose_queue.h"

#include <liburing.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <system_error>
#include <utility>

#include "runtime/base/check.h"

namespace ds::offload {
namespace {

constexpr int kMostRegistered = 1024;

std::int64_t TransferHere(const IoBlock& block) {
  FileSystem& system = FileSystem::System();
  return block.writes ? system.Write(block.fd, block.bytes, block.offset)
                      : system.Read(block.fd, block.bytes, block.offset);
}

}  // namespace

bool PendingBlock::Advance(std::int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return false;
  if (result <= 0) {
    // Retrying would not help a write that transferred nothing and reported no error.
    const int error = result == 0 && block.writes ? EIO : static_cast<int>(-result);
    transfer->EndBlock(IoFailure{.block = block, .error = error});
    return true;
  }
  block.bytes = block.bytes.subspan(static_cast<std::size_t>(result));
  block.offset += result;
  if (!block.bytes.empty()) return false;
  transfer->EndBlock({});
  return true;
}

void PendingBlocks::Add(std::vector<IoBlock> blocks, const std::shared_ptr<IoTransfer>& transfer) {
  const std::lock_guard lock(mutex_);
  for (IoBlock& block : blocks) blocks_.push_back({std::move(block), transfer});
  changed_.notify_all();
}

std::vector<PendingBlock> PendingBlocks::Take(std::size_t most, bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) changed_.wait(lock, [&] { return closed_ || !blocks_.empty(); });
  const auto count = static_cast<std::ptrdiff_t>(std::min(most, blocks_.size()));
  const auto end = blocks_.begin() + count;
  std::vector<PendingBlock> taken(std::make_move_iterator(blocks_.begin()),
                                  std::make_move_iterator(end));
  blocks_.erase(blocks_.begin(), end);
  return taken;
}

void PendingBlocks::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

class RingQueue::Worker {
 public:
  Worker(PendingBlocks& list, const IoOptions& options)
      : list_(list), options_(options), slots_(static_cast<std::size_t>(options.queue_depth)) {
    free_.resize(slots_.size());
    std::iota(free_.begin(), free_.end(), std::size_t{0});
  }

  ~Worker() {
    if (thread_.joinable()) thread_.join();
    if (initialized_) io_uring_queue_exit(&ring_);
  }

  // Returns 0 or the negative errno.
  int Open() {
    const int opened = io_uring_queue_init(static_cast<unsigned>(options_.queue_depth), &ring_, 0);
    if (opened < 0) return opened;
    initialized_ = true;
    return HasOperations() ? 0 : -EOPNOTSUPP;
  }

  void Start() {
    thread_ = std::thread([this] { Run(); });
  }

  io_uring& ring() { return ring_; }

 private:
  // Returns false on kernels before 5.6, where io_uring lacks these operations or the probe.
  bool HasOperations() {
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) return false;
    const auto operations = {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED,
                             IORING_OP_WRITE_FIXED};
    const bool has_all = std::all_of(operations.begin(), operations.end(), [&](int operation) {
      return io_uring_opcode_supported(probe, operation) != 0;
    });
    io_uring_free_probe(probe);
    return has_all;
  }

  std::size_t in_flight() const { return slots_.size() - free_.size(); }

  void Run() {
    while (true) {
      if (options_.overlap_events || in_flight() == 0) {
        std::vector<PendingBlock> more = list_.Take(free_.size(), /*wait=*/in_flight() == 0);
        if (more.empty() && in_flight() == 0) return;
        for (PendingBlock& pending : more) {
          const std::size_t slot = free_.back();
          free_.pop_back();
          slots_[slot] = std::move(pending);
          Ask(slot);
        }
      }
      SubmitAndWait(options_.overlap_events ? 1 : static_cast<unsigned>(in_flight()));
      Reap();
    }
  }

  // Submits the remaining part of a slot's block. The ring has one entry per slot.
  void Ask(std::size_t slot) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    DS_CHECK(entry != nullptr);
    const IoBlock& block = slots_[slot].block;
    const auto size = static_cast<unsigned>(block.bytes.size());
    const auto offset = static_cast<std::uint64_t>(block.offset);
    std::byte* const data = block.bytes.data();
    if (block.registered && block.writes) {
      io_uring_prep_write_fixed(entry, block.fd, data, size, offset, *block.registered);
    } else if (block.registered) {
      io_uring_prep_read_fixed(entry, block.fd, data, size, offset, *block.registered);
    } else if (block.writes) {
      io_uring_prep_write(entry, block.fd, data, size, offset);
    } else {
      io_uring_prep_read(entry, block.fd, data, size, offset);
    }
    io_uring_sqe_set_data64(entry, slot);
    if (options_.single_submit) SubmitAndWait(0);
  }

  void SubmitAndWait(unsigned count) {
    const int result = io_uring_submit_and_wait(&ring_, count);
    // On EAGAIN and EBUSY the kernel lacks memory for more requests; finished requests release
    // some.
    const bool passes = result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY;
    DS_CHECK_MSG(passes, "io_uring_submit_and_wait: errno " + std::to_string(-result));
  }

  void Reap() {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) {
      const auto slot = static_cast<std::size_t>(io_uring_cqe_get_data64(entry));
      std::int64_t result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      // The kernel cancels a request that needs a kernel thread when the user's thread limit is
      // reached.
      if (result == -ECANCELED) result = TransferHere(slots_[slot].block);
      if (slots_[slot].Advance(result)) {
        slots_[slot] = {};
        free_.push_back(slot);
      } else {
        Ask(slot);
      }
    }
  }

  PendingBlocks& list_;
  const IoOptions options_;
  io_uring ring_ = {};
  bool initialized_ = false;
  std::vector<PendingBlock> slots_;
  std::vector<std::size_t> free_;  // slots
  std::thread thread_;
};

StatusOr<std::unique_ptr<RingQueue>> RingQueue::Create(const IoOptions& options) {
  std::unique_ptr<RingQueue> queue(new RingQueue());
  bool registers = true;
  for (int i = 0; i < options.threads; ++i) {
    auto worker = std::make_unique<Worker>(queue->list_, options);
    if (const int error = worker->Open(); error < 0) return ErrnoError(-error, "io_uring_setup");
    registers =
        registers && io_uring_register_buffers_sparse(&worker->ring(), kMostRegistered) == 0;
    queue->workers_.push_back(std::move(worker));
  }
  if (registers) {
    queue->free_numbers_.resize(kMostRegistered);
    std::iota(queue->free_numbers_.begin(), queue->free_numbers_.end(), 0);
  }
  DS_RETURN_IF_ERROR(queue->StartWorkers());
  return queue;
}

// A container may limit the number of threads. The threads that start process all blocks.
Status RingQueue::StartWorkers() {
  for (std::size_t started = 0; started < workers_.size(); ++started) {
    try {
      workers_[started]->Start();
    } catch (const std::system_error& error) {
      workers_.resize(started);
      if (started == 0) return ErrnoError(error.code().value(), "a thread for io_uring");
    }
  }
  return OkStatus();
}

RingQueue::~RingQueue() { list_.Close(); }

void RingQueue::Begin(std::vector<IoBlock> blocks, const std::shared_ptr<IoTransfer>& transfer) {
  list_.Add(std::move(blocks), transfer);
}

bool RingQueue::Update(int number, std::span<std::byte> memory) {
  const iovec vector{.iov_base = memory.data(), .iov_len = memory.size()};
  return std::all_of(workers_.begin(), workers_.end(), [&](const auto& worker) {
    return io_uring_register_buffers_update_tag(&worker->ring(), static_cast<unsigned>(number),
                                                &vector, nullptr, 1) == 1;
  });
}

// RLIMIT_MEMLOCK may limit the memory that a user can lock. Memory above the limit stays
// unregistered.
std::optional<int> RingQueue::Register(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  if (free_numbers_.empty()) return std::nullopt;
  const int number = free_numbers_.back();
  if (!Update(number, memory)) {
    static_cast<void>(Update(number, {}));
    return std::nullopt;
  }
  free_numbers_.pop_back();
  return number;
}

void RingQueue::Unregister(int number) {
  const std::lock_guard lock(mutex_);
  static_cast<void>(Update(number, {}));
  free_numbers_.push_back(number);
}

ThreadQueue::ThreadQueue(const IoOptions& options, FileSystem& system) : system_(system) {
  const std::int64_t in_flight = std::int64_t{options.threads} * options.queue_depth;
  const auto count = std::min<std::int64_t>(in_flight, kMostThreads);
  DS_CHECK(count > 0);
  try {
    for (std::int64_t i = 0; i < count; ++i) threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error&) {
    // A container may limit the number of threads. A single thread can process all blocks, only
    // with fewer in flight.
    if (threads_.empty()) throw;
  }
}

ThreadQueue::~ThreadQueue() {
  list_.Close();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadQueue::Begin(std::vector<IoBlock> blocks, const std::shared_ptr<IoTransfer>& transfer) {
  list_.Add(std::move(blocks), transfer);
}

void ThreadQueue::Run() {
  while (true) {
    std::vector<PendingBlock> taken = list_.Take(1, /*wait=*/true);
    if (taken.empty()) return;
    PendingBlock& pending = taken[0];
    const IoBlock& block = pending.block;
    while (!pending.Advance(block.writes ? system_.Write(block.fd, block.bytes, block.offset)
                                         : system_.Read(block.fd, block.bytes, block.offset))) {
    }
  }
}

ChosenQueue ChooseQueue(const IoOptions& options, QueueChoice choice, FileSystem& system) {
  std::string why_not = "threads were asked for";
  if (choice == QueueChoice::kAuto) {
    StatusOr<std::unique_ptr<RingQueue>> ring = RingQueue::Create(options);
    if (ring.ok()) return {.queue = *std::move(ring)};
    why_not = "this kernel, or the container's rules, forbid it (" + ring.status().message() + ")";
  }
  return {.queue = std::make_unique<ThreadQueue>(options, system), .why_not_ring = why_not};
}

}  // namespace ds::offload
