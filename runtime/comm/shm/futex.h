#pragma once

// Waiting on a 32-bit word in memory that several processes may map.
//
// Threads: safe on any word, from any thread of any process that maps it.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ds::comm {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Blocks while `word` is `expected`, until FutexWakeAll or `timeout`. May also return for no
// reason: the caller looks at the word again.
void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
               std::chrono::nanoseconds timeout);

void FutexWakeAll(std::atomic<std::uint32_t>& word);

}  // namespace ds::comm
