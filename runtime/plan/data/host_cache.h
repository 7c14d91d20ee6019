#pragma once

// HostCache: keeps files that are made once per host, in folders with a manifest.
//
// A folder's name is derived from a description of the inputs of its content. The folder appears
// only when it is complete; it is made again if its manifest has another description, or if it is
// damaged. If several processes want the same folder, one makes it and the others wait. On file
// systems without locks each process makes it, and all use the first one that is complete. Hosts
// between which locks do not hold (NFS with local_lock, Lustre with localflock) do the same: an
// unfinished folder belongs to one host.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/host_name.h"
#include "runtime/base/status.h"

namespace ds::data {

class HostCache {
 public:
  using Json = nlohmann::ordered_json;

  // Folders are in `root`, which is created if it is missing. `host` distinguishes hosts that share
  // `root`. `system` must outlive this object.
  explicit HostCache(std::filesystem::path root, FileSystem& system = FileSystem::System(),
                     std::string host = HostName("host"))
      : root_(std::move(root)), system_(system), host_(std::move(host)) {}

  struct Folder {
    std::filesystem::path path;
    Json manifest;           // as returned by Make
    bool was_there = false;  // true: nothing had to be made
  };
  // True if a folder has all the files that its manifest lists.
  using IsComplete = std::function<bool(const Folder& folder)>;
  // Fills an empty folder and returns the manifest, an object.
  using Make = std::function<StatusOr<Json>(const std::filesystem::path& folder)>;

  // Fails with errors of `make`, and if the root cannot be written.
  StatusOr<Folder> FindOrMake(const Json& description, const IsComplete& is_complete,
                              const Make& make) const;

 private:
  std::filesystem::path root_;
  FileSystem& system_;
  std::string host_;
};

// Adds advice about another cache location to an error of writing to a cache.
Status AddLocationAdvice(const Status& status);

// Returns the path, size and modification time of each file, for use in a description.
StatusOr<HostCache::Json> DescribeFiles(const std::vector<std::filesystem::path>& files);

}  // namespace ds::data
