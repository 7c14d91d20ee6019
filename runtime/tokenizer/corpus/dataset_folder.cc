#include "runtime/tokenizer/corpus/dataset_folder.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "runtime/base/files.h"
#include "runtime/base/path_exists.h"
#include "runtime/tokenizer/corpus/card_configs.h"
#include "runtime/tokenizer/corpus/data_kind.h"
#include "runtime/tokenizer/corpus/split_names.h"
#include "runtime/tokenizer/text/json_object.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<std::string>;  // relative to the folder
using Splits = std::map<std::string, std::vector<std::string>>;

constexpr std::size_t kMostNames = 4;  // listed in a notice

// Returns the splits for a use, in order of preference.
Paths SplitsFor(DataUse use) {
  return use == DataUse::kTraining ? Paths{"train"} : Paths{"validation", "test"};
}

std::string NoSplit(DataUse use) {
  return std::string("there is no split ") +
         (use == DataUse::kTraining ? "\"train\"" : "\"validation\" or \"test\"");
}

Status RefuseFolder(const fs::path& folder, const std::string& what) {
  return InvalidArgumentError(ShortenPath(folder) + ": " + what);
}

std::string Join(const Paths& names, std::size_t most = kMostNames) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < most; ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
  return text;
}

StatusOr<Json> ReadJson(const fs::path& path) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  return ParseJsonFile(text, ShortenPath(path));
}

// Returns the names in a folder, sorted.
StatusOr<std::vector<fs::path>> ListEntries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    found.push_back(entry->path());
  }
  if (error) return ErrnoError(error.value(), ShortenPath(folder));
  std::sort(found.begin(), found.end());
  return found;
}

// Returns true for a folder of the Hugging Face cache.
StatusOr<bool> IsOfCache(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(const bool has_snapshots, PathExists(folder / "snapshots"));
  DS_ASSIGN_OR_RETURN(const bool has_refs, PathExists(folder / "refs"));
  DS_ASSIGN_OR_RETURN(const bool has_blobs, PathExists(folder / "blobs"));
  return has_snapshots && (has_refs || has_blobs);
}

// Returns the snapshot of a folder of the Hugging Face cache; other folders unchanged.
StatusOr<fs::path> FindSnapshot(const fs::path& folder) {
  const fs::path snapshots = folder / "snapshots";
  DS_ASSIGN_OR_RETURN(const bool is_of_cache, IsOfCache(folder));
  if (!is_of_cache) return folder;
  DS_ASSIGN_OR_RETURN(const bool has_main, PathExists(folder / "refs/main"));
  if (has_main) {
    DS_ASSIGN_OR_RETURN(std::string commit, ReadFile(folder / "refs/main", kMaxConfigBytes));
    commit.erase(std::find_if(commit.begin(), commit.end(), [](char c) { return c == '\n'; }),
                 commit.end());
    DS_ASSIGN_OR_RETURN(const bool is_there, PathExists(snapshots / commit));
    if (!commit.empty() && is_there) return snapshots / commit;
  }
  DS_ASSIGN_OR_RETURN(const auto found, ListEntries(snapshots));
  if (found.size() == 1) return found[0];
  return RefuseFolder(folder,
                      "the cache has " + std::to_string(found.size()) +
                          " snapshots, and refs/main names none of them: name the folder of one");
}

struct Listing {
  Paths data;
  Paths others;  // visible files that are empty or not data by their names
};

// Returns true for hidden entries, and for folders such as __pycache__.
bool IsIgnoredEntry(const fs::path& path, fs::file_type type) {
  const std::string name = path.filename().string();
  return name.starts_with(".") || (name.starts_with("__") && type == fs::file_type::directory);
}

bool IsIndexOfTokens(const fs::path& path) {
  std::error_code error;
  return path.extension() == ".idx" && fs::exists(fs::path(path).replace_extension(".bin"), error);
}

StatusOr<fs::file_type> TypeOfEntry(const fs::directory_entry& entry) {
  std::error_code error;
  const fs::file_type type = entry.status(error).type();
  if (type == fs::file_type::not_found) {
    return NotFoundError(ShortenPath(entry.path()) +
                         ": the link leads to no file: fetch the file, or remove the link");
  }
  if (error) return ErrnoError(error.value(), ShortenPath(entry.path()));
  return type;
}

// Returns the visible files of a folder and its subfolders, sorted.
StatusOr<std::vector<fs::path>> ListVisible(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (IsIgnoredEntry(entry->path(), fs::file_type::regular)) {
      entry.disable_recursion_pending();
      continue;
    }
    DS_ASSIGN_OR_RETURN(const fs::file_type type, TypeOfEntry(*entry));
    if (IsIgnoredEntry(entry->path(), type)) {
      entry.disable_recursion_pending();
    } else if (type == fs::file_type::regular && !IsIndexOfTokens(entry->path())) {
      found.push_back(entry->path());
    }
  }
  if (error) return ErrnoError(error.value(), ShortenPath(folder));
  std::sort(found.begin(), found.end());
  return found;
}

StatusOr<Listing> ListNames(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(const std::vector<fs::path> found, ListVisible(folder));
  Listing listing;
  for (const fs::path& path : found) {
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    if (error) return ErrnoError(error.value(), ShortenPath(path));
    const bool is_data = GroupOf(path).has_value() && !AccompaniesData(path) && bytes > 0;
    (is_data ? listing.data : listing.others).push_back(path.lexically_relative(folder));
  }
  return listing;
}

// Lists the files of a folder written by Dataset.save_to_disk.
StatusOr<FolderData> ListSaved(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(const Json state, ReadJson(folder / "state.json"));
  FolderData data;
  for (const Json& each : state.value("_data_files", Json())) {
    const Json name = each.is_object() ? each.value("filename", Json()) : each;
    if (!name.is_string() || name.get<std::string>().find('/') != std::string::npos) {
      return RefuseFolder(folder / "state.json",
                          "an entry of _data_files names no file of the folder");
    }
    data.files.push_back(folder / name.get<std::string>());
    DS_ASSIGN_OR_RETURN(const bool exists, PathExists(data.files.back()));
    if (!exists) {
      return NotFoundError(ShortenPath(data.files.back()) +
                           ": there is no such file, but state.json names it");
    }
  }
  if (data.files.empty()) return RefuseFolder(folder, "state.json names no data files");
  return data;
}

// Lists the split of a folder written by DatasetDict.save_to_disk.
StatusOr<FolderData> ListSavedSplits(const fs::path& folder, DataUse use) {
  DS_ASSIGN_OR_RETURN(const Json names, ReadJson(folder / "dataset_dict.json"));
  Paths others;
  for (const Json& each : names.value("splits", Json::array())) {
    if (each.is_string()) others.push_back(each.get<std::string>());
  }
  for (const std::string& split : SplitsFor(use)) {
    DS_ASSIGN_OR_RETURN(const bool exists, PathExists(folder / split));
    if (!exists) continue;
    DS_ASSIGN_OR_RETURN(FolderData data, ListSaved(folder / split));
    std::erase(others, split);
    if (!others.empty()) {
      data.notice = ShortenPath(folder) + ": the split " + split + " is read; the splits " +
                    Join(others) + " are not read: name their folders to read them";
    }
    return data;
  }
  return RefuseFolder(folder,
                      NoSplit(use) + "; name the folder of one of its splits: " + Join(others));
}

// Returns the configuration that `datasets` selects without a name. Requires one configuration or
// more.
StatusOr<CardConfig> TakeDefault(const std::vector<CardConfig>& configs) {
  if (configs.size() == 1) return configs.front();
  Paths names;
  const CardConfig* chosen = nullptr;
  for (const CardConfig& each : configs) {
    names.push_back(each.name);
    if (each.is_default && chosen != nullptr) {
      return InvalidArgumentError("the configurations " + chosen->name + " and " + each.name +
                                  " are both the default: name the files of one of them");
    }
    if (each.is_default) chosen = &each;
  }
  if (chosen != nullptr) return *chosen;
  return InvalidArgumentError("the data has the configurations " + Join(names, names.size()) +
                              ", and none is the default: name the files of one of them");
}

// Returns the configuration of the card; null without a card.
StatusOr<std::optional<CardConfig>> ChooseConfig(const fs::path& folder) {
  const fs::path other_card = folder / ".huggingface.yaml";
  DS_ASSIGN_OR_RETURN(const bool has_other, PathExists(other_card));
  if (has_other) {
    return RefuseFolder(other_card,
                        "this file may list the files of the splits, but dsrun only reads "
                        "README.md: move its configs there, or name the files to read");
  }
  const fs::path card = folder / "README.md";
  DS_ASSIGN_OR_RETURN(const bool exists, PathExists(card));
  if (!exists) return std::optional<CardConfig>();
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(card, kMaxConfigBytes));
  const auto configs = ReadCardConfigs(text);
  if (!configs.ok()) return configs.status().WithContext(ShortenPath(card));
  if (configs->empty()) return std::optional<CardConfig>();
  auto chosen = TakeDefault(*configs);
  if (!chosen.ok()) return chosen.status().WithContext(ShortenPath(card));
  if (chosen->other_keys.empty()) return std::optional(std::move(*chosen));
  return RefuseFolder(card, "the configuration " + chosen->name + " sets " +
                                Join(chosen->other_keys, chosen->other_keys.size()) +
                                ", which dsrun does not read: name the files to read");
}

Splits MatchSplits(const CardConfig& config, const Paths& paths) {
  Splits splits;
  for (const CardSplit& split : config.splits) {
    Paths& taken = splits[split.name];
    for (const std::string& pattern : split.patterns) {
      const std::string full = config.data_dir.empty() ? pattern : config.data_dir + "/" + pattern;
      const std::string plain = fs::path(full).lexically_normal();
      for (const std::string& path : paths) {
        if (MatchesCardPattern(plain, path)) taken.push_back(path);
      }
    }
  }
  return splits;
}

// Returns the splits of the folder's files; empty where neither the card nor a name contains one.
// Removes the files outside the card's folder from `paths`.
StatusOr<Splits> FindFolderSplits(const fs::path& folder, Paths* paths) {
  DS_ASSIGN_OR_RETURN(const auto config, ChooseConfig(folder));
  if (config && !config->splits.empty()) return MatchSplits(*config, *paths);
  std::string below = config ? fs::path(config->data_dir).lexically_normal().string() : "";
  if (below == ".") below.clear();
  if (!below.empty() && !below.ends_with('/')) below += '/';
  std::erase_if(*paths, [&](const std::string& path) { return !path.starts_with(below); });
  Paths named;
  for (const std::string& path : *paths) {
    if (GroupOf(path) != DataGroup::kSource) named.push_back(path.substr(below.size()));
  }
  Splits splits = FindSplits(named);
  for (auto& [name, files] : splits) {
    for (std::string& file : files) file.insert(0, below);
  }
  return splits;
}

// Rejects files of several formats. Source code counts as text, like .txt; next to rows it is
// skipped, as in `datasets`.
StatusOr<Paths> TakeOneFormat(const fs::path& folder, const Paths& paths) {
  std::map<DataGroup, Paths> groups;
  for (const std::string& path : paths) groups[*GroupOf(path)].push_back(path);
  if (groups.size() == 2 && groups.contains(DataGroup::kTxt) &&
      groups.contains(DataGroup::kSource)) {
    return paths;
  }
  if (groups.size() > 1) groups.erase(DataGroup::kSource);
  if (groups.size() == 1) return groups.begin()->second;
  Paths examples;
  for (const auto& [group, files] : groups) {
    examples.push_back(std::to_string(files.size()) + " like " + files.front());
  }
  return RefuseFolder(
      folder, "the folder has files of several formats (" + Join(examples, examples.size()) +
                  "): name those to read, or a quoted pattern such as '" +
                  ShortenPath(folder / ("*" + fs::path(paths[0]).extension().string())) + "'");
}

// The selected part of the folder's files.
struct Taken {
  Paths paths;
  std::string split;  // "" if there are no splits
};

StatusOr<Taken> TakeSplit(const fs::path& folder, const Splits& splits, DataUse use, Paths all) {
  if (splits.empty()) return Taken{.paths = std::move(all), .split = ""};
  for (const std::string& name : SplitsFor(use)) {
    const auto found = splits.find(name);
    if (found != splits.end()) return Taken{.paths = found->second, .split = name};
  }
  Paths names;
  for (const auto& [name, files] : splits) names.push_back(name + " (" + Join(files, 1) + ")");
  return RefuseFolder(folder, NoSplit(use) + "; the files belong to " + Join(names, names.size()) +
                                  ": name the files to read");
}

// Lists the files that are read and the skipped ones; "" if all are read.
std::string DescribeSkipped(const fs::path& folder, const Taken& taken, const Splits& splits,
                            const Listing& listing) {
  const std::set<std::string> read(taken.paths.begin(), taken.paths.end());
  Paths rest, other_splits;
  for (const auto& [name, files] : splits) {
    if (name != taken.split) other_splits.push_back(name + " (" + Join(files, 1) + ")");
  }
  for (const Paths* paths : {&listing.data, &listing.others}) {
    std::copy_if(paths->begin(), paths->end(), std::back_inserter(rest),
                 [&](const std::string& path) { return !read.contains(path); });
  }
  if (rest.empty()) return "";
  std::string text = ShortenPath(folder) + ": " + Join(taken.paths) +
                     (taken.paths.size() == 1 ? " is read" : " are read");
  if (!taken.split.empty()) text += ", the split " + taken.split;
  if (!other_splits.empty()) {
    text += "; the splits " + Join(other_splits) + " are not read: name their files to read them";
  }
  return text + "; " + std::to_string(rest.size()) +
         (rest.size() == 1 ? " file is skipped: " : " files are skipped: ") + Join(rest);
}

StatusOr<FolderData> ListPlain(const fs::path& folder, DataUse use) {
  DS_ASSIGN_OR_RETURN(const Listing listing, ListNames(folder));
  Paths paths = listing.data;
  DS_ASSIGN_OR_RETURN(const Splits splits, FindFolderSplits(folder, &paths));
  DS_ASSIGN_OR_RETURN(Taken taken, TakeSplit(folder, splits, use, std::move(paths)));
  const Paths& there = listing.data.empty() ? listing.others : listing.data;
  if (there.empty()) return RefuseFolder(folder, "the data folder has no files");
  if (taken.paths.empty()) {
    return RefuseFolder(folder,
                        "none of the folder's files is data by its name, split and size (there "
                        "is: " +
                            Join(there) + "); name the files to read");
  }
  DS_ASSIGN_OR_RETURN(taken.paths, TakeOneFormat(folder, taken.paths));
  FolderData data{.files = {}, .notice = DescribeSkipped(folder, taken, splits, listing)};
  for (const std::string& path : taken.paths) data.files.push_back(folder / path);
  return data;
}

}  // namespace

StatusOr<FolderData> ListFolder(const fs::path& folder, DataUse use) {
  DS_ASSIGN_OR_RETURN(const fs::path snapshot, FindSnapshot(folder));
  DS_ASSIGN_OR_RETURN(const bool has_splits, PathExists(snapshot / "dataset_dict.json"));
  if (has_splits) return ListSavedSplits(snapshot, use);
  DS_ASSIGN_OR_RETURN(const bool has_state, PathExists(snapshot / "state.json"));
  DS_ASSIGN_OR_RETURN(const bool has_info, PathExists(snapshot / "dataset_info.json"));
  if (has_state && has_info) return ListSaved(snapshot);
  return ListPlain(snapshot, use);
}

}  // namespace ds::tokenizer
