#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <system_error>
#include <thread>

namespace ds::testing {

// While it lives this process gets no more threads: there is no room for a stack of such a size.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_attr_init(&huge);
    ::pthread_attr_setstacksize(&huge, std::size_t{1} << 46);
    EXPECT_EQ(::pthread_setattr_default_np(&huge), 0);
    ::pthread_attr_destroy(&huge);
    EXPECT_THROW(std::thread([] {}), std::system_error);
  }
  ~NoMoreThreads() { ::pthread_setattr_default_np(&before_); }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace ds::testing
