#pragma once

// RefusingAllocator: stands in front of LibTorch's CPU allocator and refuses, as that does, what a
// test does not want to be there.

#include <c10/core/Allocator.h>

namespace ds::testing {

class RefusingAllocator : public c10::Allocator {
 public:
  // Puts one in front of the allocator that there is, for as long as the process lives.
  static void Install();

  // From here on this thread is refused what is larger, until the result is gone.
  class Refusal {
   public:
    explicit Refusal(std::size_t above);
    ~Refusal();
    Refusal(const Refusal&) = delete;
    Refusal& operator=(const Refusal&) = delete;
  };

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return wrapped_.raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  explicit RefusingAllocator(c10::Allocator& wrapped) : wrapped_(wrapped) {}

  c10::Allocator& wrapped_;
};

}  // namespace ds::testing
