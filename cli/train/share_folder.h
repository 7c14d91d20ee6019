#pragma once

// ShareFolder locates the files shipped with the programs in <bin>/../share/dsrun: the default
// config, the model presets, the recipes, the demo corpus and the pages of `dsrun help`. Build and
// install trees have the same layout.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

class ShareFolder {
 public:
  explicit ShareFolder(std::filesystem::path root) : root_(std::move(root)) {}
  // Returns the folder of the running program.
  static StatusOr<ShareFolder> OfThisProgram();

  std::filesystem::path default_config() const { return root_ / "configs/default_ds_config.json"; }
  std::filesystem::path demo_corpus() const { return root_ / "demo_corpus.txt"; }
  // Returns the config.json of a model preset; the file need not exist.
  std::filesystem::path preset(const std::string& name) const {
    return root_ / "configs/models" / (name + ".json");
  }
  // Returns the file of a recipe; it need not exist.
  std::filesystem::path recipe(const std::string& name) const {
    return root_ / "configs/recipes" / (name + ".json");
  }
  // Returns the file of a manual page; it need not exist.
  std::filesystem::path manual_page(const std::string& name) const;
  // Return the names of the model presets, the recipes and the manual pages, sorted.
  std::vector<std::string> Presets() const;
  std::vector<std::string> Recipes() const;
  std::vector<std::string> ManualPages() const;

 private:
  std::filesystem::path root_;
};

}  // namespace ds::cli
