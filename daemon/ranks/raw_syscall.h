#pragma once

// RawSyscall: a system call without errno, for code that runs in a process whose thread-local
// storage is somebody else's (cloned_child.h).

namespace ds::daemon {

// Functions that run there must not be instrumented either.
#define DS_CHILD_CODE __attribute__((no_sanitize("address", "thread", "undefined")))

// Returns what the kernel does: -errno on failure.
#if defined(__x86_64__)
DS_CHILD_CODE inline long RawSyscall(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                                     long e = 0) {
  register long fourth asm("r10") = d;
  register long fifth asm("r8") = e;
  asm volatile("syscall"
               : "+a"(number)
               : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
               : "rcx", "r11", "memory");
  return number;
}
#elif defined(__aarch64__)
DS_CHILD_CODE inline long RawSyscall(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                                     long e = 0) {
  register long which asm("x8") = number;
  register long first asm("x0") = a;
  register long second asm("x1") = b;
  register long third asm("x2") = c;
  register long fourth asm("x3") = d;
  register long fifth asm("x4") = e;
  asm volatile("svc #0"
               : "+r"(first)
               : "r"(which), "r"(second), "r"(third), "r"(fourth), "r"(fifth)
               : "memory");
  return first;
}
#else
#error "RawSyscall knows x86-64 and AArch64 only"
#endif

// Makes an argument of a pointer.
DS_CHILD_CODE inline long AddressOf(const volatile void* pointer) {
  return reinterpret_cast<long>(pointer);
}

}  // namespace ds::daemon
