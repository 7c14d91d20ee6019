#include "runtime/base/isa_probe.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ds {
namespace {

constexpr char kLimitVariable[] = "ONEDNN_MAX_CPU_ISA";
constexpr char kBelowAmx[] = "AVX512_CORE_FP16";

#if defined(__x86_64__)

// CPUID leaf 7, subleaf 0, EDX: bit 22 AMX-BF16, bit 24 AMX-TILE.
bool AdvertisesAmx() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx >> 22 & 1u) != 0 && (edx >> 24 & 1u) != 0;
}

// Executes the instructions of oneDNN's bf16 kernels. They are written as bytes, because the
// assembler may not know AMX.
void ExecuteTileInstructions() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  // Without this permission oneDNN does not use AMX either.
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return;
  alignas(64) unsigned char config[64] = {};
  config[0] = 1;                                     // palette
  config[16] = 4;                                    // tile 0: bytes per row
  config[48] = 1;                                    // tile 0: rows
  asm volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0x00"  // ldtilecfg (%rax)
               :
               : "a"(config)
               : "memory");
  asm volatile(".byte 0xc4, 0xe2, 0x7b, 0x49, 0xc0");  // tilezero %tmm0
  asm volatile(".byte 0xc4, 0xe2, 0x6a, 0x5c, 0xc1");  // tdpbf16ps %tmm2, %tmm1, %tmm0
  asm volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0");  // tilerelease
}

#else

bool AdvertisesAmx() { return false; }
void ExecuteTileInstructions() {}

#endif

}  // namespace

bool DiesInChild(void (*instruction)()) {
  const pid_t child = fork();
  if (child < 0) return true;
  if (child == 0) {
    prctl(PR_SET_DUMPABLE, 0);  // its death is expected: no core file
    instruction();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return true;
  }
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

IsaReport ProbeAndCapIsa() {
  IsaReport report;
  report.amx_advertised = AdvertisesAmx();
  report.amx_faults = report.amx_advertised && DiesInChild(&ExecuteTileInstructions);
  if (report.amx_faults) setenv(kLimitVariable, kBelowAmx, /*overwrite=*/0);
  if (const char* limit = std::getenv(kLimitVariable)) report.onednn_limit = limit;
  return report;
}

bool MayUseAmx() {
  const char* limit = std::getenv(kLimitVariable);
  if (limit == nullptr) return AdvertisesAmx();
  const std::string_view isa = limit;
  const bool allows = isa == "ALL" || isa == "DEFAULT" || isa.find("AMX") != isa.npos;
  return allows && AdvertisesAmx();
}

}  // namespace ds
