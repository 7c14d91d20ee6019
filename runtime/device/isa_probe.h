#pragma once

// ProbeAndCapIsa finds instruction sets that a processor advertises but does not execute.
//
// Some virtual machines show AMX in CPUID while a tile instruction raises SIGILL; oneDNN trusts
// CPUID, so the first bf16 matrix product would kill the rank. The probe executes one tile
// instruction in a throw-away child and, when that dies, tells oneDNN to stay below AMX. Threads:
// call before the process has other threads (it forks) and before the first tensor (oneDNN reads
// its limit once).

#include <string>

namespace ds::device {

struct IsaReport {
  bool amx_advertised = false;  // CPUID shows AMX tiles and bf16 products
  bool amx_faults = false;      // but executing one ended the child
  // ONEDNN_MAX_CPU_ISA as it stands after the probe; empty: no limit.
  std::string onednn_limit;
};

// Probes, and sets ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 when AMX faults. A limit that the user has
// set is left alone.
IsaReport ProbeAndCapIsa();

// Tells whether oneDNN multiplies bf16 matrices by tiles here: the processor shows AMX and no limit
// in the environment forbids it. Requires that the probe has run.
bool MayUseAmx();

// Tells whether a child that calls `instruction` is ended by a signal. A child that cannot be made
// counts as one that was: the caller then stays with what is safe.
bool DiesInChild(void (*instruction)());

}  // namespace ds::device
