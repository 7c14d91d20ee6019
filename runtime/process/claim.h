#pragma once

// Claim: something that only one of several processes may do, and whoever takes it first does it.
//
// An eventfd that holds one; its descriptor is handed to the others. The kernel makes taking
// atomic, so that nobody has to be asked who was first. Threads: Take is safe to call concurrently.

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

class Claim {
 public:
  static StatusOr<Claim> Create();
  // One that another process has created.
  explicit Claim(UniqueFd event) : event_(std::move(event)) {}

  int fd() const { return event_.get(); }
  // Whether it is the caller's now. Never again true, here or anywhere; false when the descriptor
  // is none of a claim.
  bool Take() const;

 private:
  UniqueFd event_;
};

}  // namespace ds
