#pragma once

// ProbeAndCapIsa detects instruction sets that a processor advertises but does not execute.
//
// Some virtual machines show AMX in CPUID although a tile instruction raises SIGILL. oneDNN trusts
// CPUID, so the first bf16 matrix product would kill the rank. The probe executes one tile
// instruction in a child process. If the child dies, the probe limits oneDNN to instruction sets
// below AMX. Call it before the process has other threads (it forks) and before the first tensor
// (oneDNN reads its limit once).

#include <string>

namespace ds {

struct IsaReport {
  bool amx_advertised = false;  // CPUID shows AMX tiles and bf16 products
  bool amx_faults = false;      // but executing a tile instruction killed the child
  // The value of ONEDNN_MAX_CPU_ISA after the probe; empty: no limit.
  std::string onednn_limit;
};

// Probes, and sets ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 if AMX faults. A limit set by the user is
// kept.
IsaReport ProbeAndCapIsa();

// Returns whether oneDNN multiplies bf16 matrices with tiles: the processor shows AMX and no limit
// in the environment forbids it. Call ProbeAndCapIsa first.
bool MayUseAmx();

// Returns whether a signal kills a child process that calls `instruction`. Returns true if no child
// can be created, so that the caller stays on the safe path.
bool DiesInChild(void (*instruction)());

}  // namespace ds
