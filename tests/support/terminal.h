#pragma once

// A pseudo terminal for tests: what is typed into it, what it is told to show, and its hang-up.

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"

namespace ds::testing {

class Terminal {
 public:
  Terminal() : keyboard_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (!keyboard_.valid() || ::grantpt(keyboard_.get()) != 0 || ::unlockpt(keyboard_.get()) != 0) {
      throw std::runtime_error("no pseudo terminal");
    }
    program_end_.Reset(::open(::ptsname(keyboard_.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    const winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(program_end_.get(), TIOCSWINSZ, &size);
  }

  // For ProgramOptions::input_fd and output_fd.
  int fd() const { return program_end_.get(); }
  void Type(std::string_view text) {
    if (!WriteAll(keyboard_.get(), text, "terminal").ok()) throw std::runtime_error("typing");
  }
  // Behind the start of a program: its end is then the end of what is shown.
  void LeaveToProgram() { program_end_.Reset(); }
  // Reads until `text` has been shown; false when the program ends first, or shows nothing at all
  // for far longer than a busy machine needs.
  bool WaitFor(std::string_view text) {
    while (shown_.find(text) == std::string::npos) {
      pollfd readable{keyboard_.get(), POLLIN, 0};
      if (::poll(&readable, 1, /*timeout=*/300'000) <= 0) return false;
      std::array<char, 4096> bytes{};
      const ssize_t size = ::read(keyboard_.get(), bytes.data(), bytes.size());
      if (size <= 0) return false;
      shown_.append(bytes.data(), static_cast<std::size_t>(size));
    }
    return true;
  }
  // All bytes that WaitFor has read, as they were sent.
  const std::string& shown() const { return shown_; }
  void Close() {
    program_end_.Reset();
    keyboard_.Reset();
  }

 private:
  UniqueFd keyboard_;
  UniqueFd program_end_;
  std::string shown_;
};

}  // namespace ds::testing
