#pragma once

// DeferredCopies: copy streams of a device that is the CPU, whose copies come as late as they may.
// A copy is made when somebody waits for it, and not before: who reads what nobody has waited for
// finds the values before, and memory that is let go before the computation has been told to wait
// for its copy fails the test. Threads: one at a time.

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/copy_streams.h"

namespace ds::testing {

class DeferredCopies : public device::CopyStreams {
 public:
  explicit DeferredCopies(std::int64_t most_leaving_bytes) : CopyStreams(most_leaving_bytes) {}
  ~DeferredCopies() override {
    FreeAll();
    ExpectMemoryOfCopies();
  }

  // "bring 8", "take 8": begun, with their bytes. "wait": the computation did, for the first time.
  // "host waits": which alone tells the host that a copy has ended.
  std::vector<std::string> log;

  device::CopyEndPtr Bring(const at::Tensor& to, const at::Tensor& from,
                           const std::vector<device::CopyEndPtr>& after) override {
    log.push_back("bring " + std::to_string(to.nbytes()));
    return Begin(to, from, /*device=*/to, /*host=*/from, after);
  }
  void Await(const device::CopyEnd& end) override {
    ExpectMemoryOfCopies();
    if (CopyOf(end).made) return;
    log.emplace_back("wait");
    Make(CopyOf(end));
  }
  void AwaitOnHost(const device::CopyEnd& end) override {
    ExpectMemoryOfCopies();
    if (std::exchange(CopyOf(end).is_known, true)) return;
    log.emplace_back("host waits");
    Make(CopyOf(end));
  }
  bool HasEnded(const device::CopyEnd& end) override { return CopyOf(end).is_known; }

 protected:
  device::CopyEndPtr Take(const at::Tensor& to, const at::Tensor& from) override {
    log.push_back("take " + std::to_string(from.nbytes()));
    return Begin(to, from, /*device=*/from, /*host=*/to, {});
  }

 private:
  struct Copy : device::CopyEnd {
    void* to = nullptr;
    const void* from = nullptr;
    std::size_t bytes = 0;
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;  // of the device's side
    at::Tensor host;  // pinned memory is not another one's either before its copies have ended
    std::vector<device::CopyEndPtr> after;
    mutable bool made = false, is_known = false;

    explicit Copy(const at::Tensor& device)
        : memory(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
              device.storage().unsafeGetStorageImpl())) {}
  };
  static const Copy& CopyOf(const device::CopyEnd& end) { return static_cast<const Copy&>(end); }

  device::CopyEndPtr Begin(const at::Tensor& to, const at::Tensor& from, const at::Tensor& device,
                           const at::Tensor& host, const std::vector<device::CopyEndPtr>& after) {
    ExpectMemoryOfCopies();
    auto copy = std::make_shared<Copy>(device);
    copy->to = to.mutable_data_ptr();
    copy->from = from.const_data_ptr();
    copy->bytes = to.nbytes();
    copy->host = host;
    copy->after = after;
    in_flight_.push_back(copy);
    return copy;
  }

  static void Make(const Copy& copy) {
    if (std::exchange(copy.made, true)) return;
    for (const device::CopyEndPtr& other : copy.after) Make(CopyOf(*other));
    if (!copy.memory.expired()) std::memcpy(copy.to, copy.from, copy.bytes);
  }

  void ExpectMemoryOfCopies() {
    std::erase_if(in_flight_, [](const auto& copy) { return copy->made; });
    for (const auto& copy : in_flight_) {
      EXPECT_FALSE(copy->memory.expired()) << "memory is free before its copy has ended";
    }
  }

  std::vector<std::shared_ptr<const Copy>> in_flight_;
};

}  // namespace ds::testing
