#include "daemon/inspect/inspect_host.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "daemon/inspect/bound_facts.h"
#include "daemon/inspect/child_output.h"
#include "daemon/inspect/dsrank_facts.h"
#include "daemon/inspect/find_program.h"
#include "daemon/inspect/gpu_users.h"
#include "daemon/inspect/judge.h"
#include "daemon/inspect/mounts.h"
#include "daemon/inspect/python_facts.h"
#include "daemon/inspect/read_host.h"
#include "runtime/base/clock.h"
#include "runtime/base/gpu_signs.h"

namespace ds::daemon {
namespace {

using Deadline = std::chrono::steady_clock::time_point;

constexpr char kGpuHint[] = "the driver may hang: see nvidia-smi and dmesg on this host";

// What the threads of the parts share with the caller, who may leave before them.
struct Answers {
  std::mutex mutex;
  std::condition_variable changed;
  v1::HostFacts facts;  // guarded by mutex, like all below
  std::vector<FactsPart> awaited;
};

void ReadPart(const FactsPart& part, Answers* answers) {
  v1::HostFacts facts;
  part.read(&facts);
  BoundFacts(&facts);
  const std::lock_guard lock(answers->mutex);
  answers->facts.MergeFrom(facts);
  std::erase_if(answers->awaited, [&](const FactsPart& each) { return each.name == part.name; });
  answers->changed.notify_all();
}

void AddUnanswered(const std::string& message, const std::string& hint, v1::HostFacts* facts) {
  v1::UnansweredPart* part = facts->add_unanswered();
  part->set_message(message);
  part->set_hint(hint);
}

using FolderField = v1::FolderFacts* (v1::HostFacts::*)();

FactsPart MakeFolderPart(const std::string& what, const std::string& path, FolderField field) {
  const auto read = [path, field](v1::HostFacts* facts) {
    v1::FolderFacts* folder = (facts->*field)();
    *folder = ReadFolder(path);
    folder->set_file_system(FindFileSystemType(path));
  };
  return {what + " " + WithFileSystem(path), kMountsHint, read};
}

// Jobs make the folder if it is missing.
FactsPart MakeNewFolderPart(const std::string& what, const std::string& path, FolderField field) {
  const auto read = [what, path, field](v1::HostFacts* facts) {
    MakeFolderPart(what, FindNearestExisting(path).string(), field).read(facts);
  };
  return {what + " " + WithFileSystem(path), kMountsHint, read};
}

FactsPart MakePythonPart(const InspectOptions& options, Deadline deadline) {
  v1::PrepareRequest request;
  request.set_program(options.python);
  *request.mutable_environment() = options.exports;
  // A working directory that is missing says nothing about an interpreter that is elsewhere.
  const bool is_relative =
      options.python.find('/') != std::string::npos && options.python[0] != '/';
  if (is_relative) request.set_working_directory(options.working_directory);
  const auto limit = std::min<std::chrono::nanoseconds>(kPythonTimeout, LimitPrograms(deadline));
  const auto read = [request, environment = options.environment, limit](v1::HostFacts* facts) {
    *facts->mutable_python() = DescribePython(request, environment, limit);
  };
  return {"Python interpreter " + options.python, kMountsHint, read};
}

// Apart from the driver's files: nvidia-smi may hang where they can be read.
FactsPart MakeNvidiaSmiPart(const InspectOptions& options, Deadline deadline) {
  std::string path = FindEnvironmentValue(options.environment, "PATH").value_or("");
  if (path.empty()) path = kDefaultSearchPath;
  const auto read = [path, limit = LimitPrograms(deadline)](v1::HostFacts* facts) {
    if (HasNvidiaDriver()) AskNvidiaSmi(path, limit, facts);
  };
  return {"nvidia-smi", kGpuHint, read};
}

}  // namespace

v1::HostFacts ReadParts(std::vector<FactsPart> parts, Deadline deadline) {
  const Deadline start = std::chrono::steady_clock::now();
  const auto answers = std::make_shared<Answers>();
  v1::HostFacts not_started;
  for (FactsPart& part : parts) {
    std::unique_lock lock(answers->mutex);
    try {
      std::thread([answers, part] { ReadPart(part, answers.get()); }).detach();
      answers->awaited.push_back(std::move(part));
    } catch (const std::system_error& error) {
      AddUnanswered(part.name + ": no thread could be started: " + error.code().message(),
                    "let this user run more processes and threads: ulimit -u, or the limit of the "
                    "container",
                    &not_started);
    }
  }
  std::unique_lock lock(answers->mutex);
  answers->changed.wait_until(lock, deadline, [&] { return answers->awaited.empty(); });
  v1::HostFacts facts = answers->facts;
  const auto waited =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start);
  for (const FactsPart& part : answers->awaited) {
    AddUnanswered(part.name + " has not answered for " + std::to_string(waited.count()) + " s",
                  part.hint, &facts);
  }
  facts.MergeFrom(not_started);
  return facts;
}

v1::HostFacts InspectHost(const InspectOptions& options, Deadline deadline) {
  std::vector<FactsPart> parts = {
      {"the GPU driver", kGpuHint, [](v1::HostFacts* facts) { ReadGpus("/", facts); }},
      MakeNvidiaSmiPart(options, deadline)};
  if (!options.working_directory.empty()) {
    parts.push_back(MakeFolderPart("working directory", options.working_directory,
                                   &v1::HostFacts::mutable_working_directory));
  }
  if (!options.run_directory.empty()) {
    parts.push_back(MakeNewFolderPart("run directory", options.run_directory,
                                      &v1::HostFacts::mutable_run_directory));
  }
  const std::string home = FindEnvironmentValue(options.environment, "HOME").value_or("");
  if (options.looks_at_cache && !home.empty()) {
    parts.push_back(
        MakeNewFolderPart("cache folder", home + "/.cache/dsrun", &v1::HostFacts::mutable_cache));
  }
  parts.push_back({"dsrank " + WithFileSystem(options.dsrank.string()),
                   std::string(kMountsHint) + "; it asks the GPUs, too: see nvidia-smi and dmesg",
                   [dsrank = options.dsrank, limit = LimitPrograms(deadline)](auto* facts) {
                     *facts->mutable_dsrank() = AskDsrank(dsrank, limit);
                   }});
  if (!options.python.empty()) parts.push_back(MakePythonPart(options, deadline));
  parts.push_back({"the kernel", "see the load of this host and dmesg", [](v1::HostFacts* facts) {
                     ReadResources("/", facts);
                     ReadDescription("/", facts);
                   }});
  v1::HostFacts facts = ReadParts(std::move(parts), deadline);
  CompleteGpus(&facts);
  if (options.open_files_of_ranks && facts.has_limits()) {
    facts.mutable_limits()->set_open_files_of_ranks(*options.open_files_of_ranks);
  }
  facts.set_dsrun_version(options.dsrun_version);
  facts.set_dsrun_compiler(__VERSION__);
  facts.set_unix_nanos(Clock::System().UnixNanos());
  return facts;
}

}  // namespace ds::daemon
