#pragma once

// HostCache: what is made once on a host and kept in a folder with a manifest.
//
// The folder's name is made of a description of what decides its content. It appears when it is
// whole; one whose manifest has another description, or that is damaged, is made again. Of several
// processes that want the same one makes it and the others wait for it; where the file system has
// no locks, each makes it, and all take what is there first. So do hosts between which locks do not
// hold (NFS with local_lock, Lustre with localflock): what is unfinished is a host's own.

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

  // Folders lie in `root`, which is made where it is missing. `host` tells hosts apart that share
  // it. The file system outlives this.
  explicit HostCache(std::filesystem::path root, FileSystem& system = FileSystem::System(),
                     std::string host = HostName("host"))
      : root_(std::move(root)), system_(system), host_(std::move(host)) {}

  struct Folder {
    std::filesystem::path path;
    Json manifest;           // what Make has returned
    bool was_there = false;  // nothing had to be made
  };
  // Tells whether a folder has all that its manifest says.
  using IsWhole = std::function<bool(const Folder& folder)>;
  // Fills an empty folder and returns the manifest, an object.
  using Make = std::function<StatusOr<Json>(const std::filesystem::path& folder)>;

  // Errors are Make's, and those of a root that cannot be written.
  StatusOr<Folder> FindOrMake(const Json& description, const IsWhole& is_whole,
                              const Make& make) const;

 private:
  std::filesystem::path root_;
  FileSystem& system_;
  std::string host_;
};

// Adds to an error of writing to a cache how to have it elsewhere.
Status AdviseOnPlace(const Status& status);

// The path, size and time of change of each file, as a description has them.
StatusOr<HostCache::Json> DescribeFiles(const std::vector<std::filesystem::path>& files);

}  // namespace ds::data
