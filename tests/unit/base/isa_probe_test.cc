#include "runtime/base/isa_probe.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace ds {
namespace {

TEST(IsaProbeTest, AnInstructionThatFaultsEndsOnlyTheChild) {
  EXPECT_TRUE(DiesInChild([] { __builtin_trap(); }));
  EXPECT_TRUE(DiesInChild([] { raise(SIGILL); }));
  EXPECT_FALSE(DiesInChild([] {}));
}

TEST(IsaProbeTest, LimitsOneDnnExactlyWhenAmxFaults) {
  unsetenv("ONEDNN_MAX_CPU_ISA");
  const IsaReport report = ProbeAndCapIsa();
  EXPECT_LE(report.amx_faults, report.amx_advertised);
  EXPECT_EQ(report.onednn_limit, report.amx_faults ? "AVX512_CORE_FP16" : "");
  unsetenv("ONEDNN_MAX_CPU_ISA");
}

TEST(IsaProbeTest, TheUsersLimitStays) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  EXPECT_EQ(ProbeAndCapIsa().onednn_limit, "AVX2");
  EXPECT_STREQ(std::getenv("ONEDNN_MAX_CPU_ISA"), "AVX2");
  unsetenv("ONEDNN_MAX_CPU_ISA");
}

TEST(IsaProbeTest, ALimitBelowAmxForbidsIt) {
  for (const char* limit : {"AVX2", "AVX512_CORE", "AVX512_CORE_FP16"}) {
    setenv("ONEDNN_MAX_CPU_ISA", limit, 1);
    EXPECT_FALSE(MayUseAmx()) << limit;
  }
  unsetenv("ONEDNN_MAX_CPU_ISA");
  const bool advertised = ProbeAndCapIsa().amx_advertised;
  for (const char* limit : {"ALL", "DEFAULT", "AVX512_CORE_AMX", "AVX512_CORE_AMX_FP16"}) {
    setenv("ONEDNN_MAX_CPU_ISA", limit, 1);
    EXPECT_EQ(MayUseAmx(), advertised) << limit;
  }
  unsetenv("ONEDNN_MAX_CPU_ISA");
}

}  // namespace
}  // namespace ds
