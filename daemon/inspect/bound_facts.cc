#include "daemon/inspect/bound_facts.h"

#include "runtime/base/printable.h"
#include "runtime/base/utf8.h"

namespace ds::daemon {
namespace {

constexpr std::string_view kEllipsis = "...";
constexpr std::size_t kLongestPath = 4096;
// More GPUs, users, interfaces or features than any machine has.
constexpr int kMostEntries = 1024;

void Bound(std::string* text) { *text = BoundFact(*text); }
void BoundText(std::string* text) { *text = BoundFact(*text, kLongestFactText); }
void BoundPath(std::string* path) {
  if (path->size() > kLongestPath) path->resize(kLongestPath);
}

template <typename Entries>
void BoundCount(Entries* entries) {
  if (entries->size() > kMostEntries) {
    entries->DeleteSubrange(kMostEntries, entries->size() - kMostEntries);
  }
}

template <typename Texts>
void BoundEach(Texts* texts) {
  BoundCount(texts);
  for (std::string& text : *texts) Bound(&text);
}

void BoundFolder(v1::FolderFacts* folder) {
  BoundPath(folder->mutable_path());
  BoundText(folder->mutable_problem());
  Bound(folder->mutable_file_system());
}

template <typename Gpus>
void BoundGpus(Gpus* gpus) {
  BoundCount(gpus);
  for (v1::GpuFacts& gpu : *gpus) {
    Bound(gpu.mutable_model());
    Bound(gpu.mutable_uuid());
    BoundCount(gpu.mutable_users());
    for (v1::GpuUser& user : *gpu.mutable_users()) {
      Bound(user.mutable_program());
      Bound(user.mutable_user());
    }
  }
}

void BoundMachine(v1::HostFacts* facts) {
  for (std::string* text :
       {facts->mutable_name(), facts->mutable_machine(), facts->mutable_kernel(),
        facts->mutable_system(), facts->mutable_dsrun_version(), facts->mutable_dsrun_compiler(),
        facts->mutable_gpu_driver()}) {
    Bound(text);
  }
  BoundText(facts->mutable_gpu_problem());
  if (facts->has_processor()) {
    Bound(facts->mutable_processor()->mutable_model());
    BoundEach(facts->mutable_processor()->mutable_features());
  }
  BoundCount(facts->mutable_interfaces());
  for (v1::InterfaceFacts& interface : *facts->mutable_interfaces()) {
    Bound(interface.mutable_name());
    BoundEach(interface.mutable_addresses());
  }
}

void BoundFolders(v1::HostFacts* facts) {
  if (facts->has_shared_memory()) BoundFolder(facts->mutable_shared_memory());
  if (facts->has_working_directory()) BoundFolder(facts->mutable_working_directory());
  if (facts->has_cache()) BoundFolder(facts->mutable_cache());
  if (facts->has_run_directory()) BoundFolder(facts->mutable_run_directory());
  if (facts->has_offload()) {
    BoundText(facts->mutable_offload()->mutable_problem());
    Bound(facts->mutable_offload()->mutable_file_system());
    BoundText(facts->mutable_offload()->mutable_why_not_ring());
  }
}

}  // namespace

std::string BoundFact(std::string_view text, std::size_t most) {
  // Nothing becomes shorter, and what a cut may break lies behind the limit.
  const std::string visible = Printable(text.substr(0, most + 4));
  std::string bounded;
  for (const char c : visible) {
    if (c == '\n' || c == '\t') {
      bounded += c == '\n' ? "\\n" : "\\t";
    } else {
      bounded += c;
    }
  }
  if (bounded.size() <= most) return bounded;
  bounded.resize(most - kEllipsis.size());
  bounded.resize(ValidUtf8Prefix(bounded));
  return bounded.append(kEllipsis);
}

void BoundFacts(v1::Python* python) {
  Bound(python->mutable_version());
  Bound(python->mutable_torch());
  BoundText(python->mutable_problem());
  BoundText(python->mutable_hint());
}

void BoundFacts(v1::DsrankFacts* dsrank) {
  BoundPath(dsrank->mutable_path());
  for (std::string* text :
       {dsrank->mutable_version(), dsrank->mutable_libtorch(), dsrank->mutable_compiler(),
        dsrank->mutable_cpu_capability(), dsrank->mutable_cuda(), dsrank->mutable_nccl()}) {
    Bound(text);
  }
  BoundText(dsrank->mutable_problem());
  BoundText(dsrank->mutable_hint());
  BoundText(dsrank->mutable_cuda_problem());
}

void BoundFacts(v1::HostFacts* facts) {
  BoundMachine(facts);
  BoundFolders(facts);
  BoundGpus(facts->mutable_gpus());
  BoundGpus(facts->mutable_driver_gpus());
  if (facts->has_dsrank()) BoundFacts(facts->mutable_dsrank());
  if (facts->has_python()) BoundFacts(facts->mutable_python());
  BoundCount(facts->mutable_unanswered());
  for (v1::UnansweredPart& part : *facts->mutable_unanswered()) {
    BoundText(part.mutable_message());
    BoundText(part.mutable_hint());
  }
}

}  // namespace ds::daemon
