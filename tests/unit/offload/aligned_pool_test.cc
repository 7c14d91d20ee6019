#include "runtime/offload/aligned_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/offload/choose_queue.h"

namespace ds::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Registers everything and notes it.
class NotingQueue : public ThreadQueue {
 public:
  NotingQueue() : ThreadQueue({}, FileSystem::System()) {}

  std::optional<int> Register(std::span<std::byte> memory) override {
    registered.push_back(static_cast<std::int64_t>(memory.size()));
    return static_cast<int>(registered.size()) - 1;
  }
  void Unregister(int number) override {
    unregistered.push_back(registered[static_cast<std::size_t>(number)]);
  }

  std::vector<std::int64_t> registered, unregistered;  // bytes
};

struct Setting {
  NotingQueue queue;
  std::int64_t booked = 0;
  bool may_pin = true;
  std::vector<std::size_t> pinned, unpinned;  // bytes
  AlignedPool pool{queue,
                   /*most_idle=*/3 * AlignedPool::kPage,
                   [this](std::int64_t change) { booked += change; },
                   {.pin = [this](auto bytes) { return pinned.push_back(bytes.size()), may_pin; },
                    .unpin = [this](auto bytes) { unpinned.push_back(bytes.size()); }}};
};

TEST(AlignedPool, GivesFullPagesOnPages) {
  Setting setting;
  const AlignedBuffer buffer = setting.pool.Take(5000);
  EXPECT_EQ(buffer.bytes().size(), 2 * AlignedPool::kPage);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % AlignedPool::kPage, 0U);
  EXPECT_EQ(buffer.registered(), 0);
  EXPECT_EQ(setting.booked, 2 * AlignedPool::kPage);
}

TEST(AlignedPool, PinsMappedMemoryAndUnpinsItBeforeUnmapping) {
  Setting setting;
  for (int i = 0; i < 2; ++i) static_cast<void>(setting.pool.Take(8192));
  EXPECT_THAT(setting.pinned, ElementsAre(8192)) << "once, while it is the pool's";
  static_cast<void>(setting.pool.Take(8 * 4096));  // more than may be idle
  EXPECT_THAT(setting.unpinned, ElementsAre(8 * 4096));
  setting.may_pin = false;
  static_cast<void>(setting.pool.Take(9 * 4096));
  EXPECT_THAT(setting.unpinned, ElementsAre(8 * 4096)) << "this one was not";
}

TEST(AlignedPool, KeepsABufferForTheNextOneOfItsSize) {
  Setting setting;
  const std::byte* const first = setting.pool.Take(8192).bytes().data();
  EXPECT_EQ(setting.booked, 8192) << "an idle buffer is memory, too";
  const AlignedBuffer again = setting.pool.Take(8000);
  EXPECT_EQ(again.bytes().data(), first);
  const AlignedBuffer other = setting.pool.Take(4096);
  EXPECT_THAT(setting.queue.registered, ElementsAre(8192, 4096));
  EXPECT_THAT(setting.queue.unregistered, IsEmpty());
}

TEST(AlignedPool, KeepsNoMoreThanItMay) {
  Setting setting;
  {
    const AlignedBuffer one = setting.pool.Take(8192), two = setting.pool.Take(4096),
                        three = setting.pool.Take(8192);
    EXPECT_EQ(setting.booked, 20480);
  }
  EXPECT_EQ(setting.booked, 12288) << "the first one, which came back last, and the page";
  EXPECT_THAT(setting.queue.unregistered, ElementsAre(8192));
}

TEST(AlignedPool, LetsOldSizesGoForTheOnesInUse) {
  Setting setting;
  {
    const AlignedBuffer one = setting.pool.Take(4096), two = setting.pool.Take(4096),
                        three = setting.pool.Take(4096);
  }
  for (int i = 0; i < 3; ++i) {
    const AlignedBuffer larger = setting.pool.Take(8192);
  }
  EXPECT_THAT(setting.queue.registered, ElementsAre(4096, 4096, 4096, 8192)) << "it is kept";
  EXPECT_THAT(setting.queue.unregistered, ElementsAre(4096, 4096));
  EXPECT_EQ(setting.booked, 12288);
}

TEST(AlignedPool, ReleasesNothingForBuffersAboveItsLimit) {
  Setting setting;
  { const AlignedBuffer small = setting.pool.Take(4096), large = setting.pool.Take(16384); }
  EXPECT_THAT(setting.queue.unregistered, ElementsAre(16384));
  EXPECT_EQ(setting.booked, 4096);
}

TEST(AlignedPool, MovesBuffers) {
  Setting setting;
  AlignedBuffer buffer = setting.pool.Take(4096);
  AlignedBuffer moved = std::move(buffer);
  moved = AlignedBuffer();
  EXPECT_EQ(setting.pool.Take(4096).bytes().size(), 4096U);
  EXPECT_THAT(setting.queue.registered, ElementsAre(4096)) << "it had come back once";
}

}  // namespace
}  // namespace ds::offload
