#include "tests/support/refusing_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <limits>

namespace ds::testing {
namespace {

constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
thread_local std::size_t largest_allowed = kAny;

}  // namespace

RefusingAllocator::Refusal::Refusal(std::size_t above) { largest_allowed = above; }
RefusingAllocator::Refusal::~Refusal() { largest_allowed = kAny; }

void RefusingAllocator::Install() {
  constexpr std::uint8_t kInFrontOfCounting = 2;
  // Never deleted: tensors outlive every owner.
  c10::SetCPUAllocator(new RefusingAllocator(*c10::GetCPUAllocator()), kInFrontOfCounting);
}

c10::DataPtr RefusingAllocator::allocate(std::size_t bytes) {
  TORCH_CHECK(bytes <= largest_allowed, "DefaultCPUAllocator: can't allocate memory: you tried to ",
              "allocate ", bytes, " bytes");
  return wrapped_.allocate(bytes);
}

}  // namespace ds::testing
