#pragma once

// ShareFolder: the files shipped with the programs, <bin>/../share/dsrun: the default config, the
// model presets, the recipes, the demo corpus and the pages of `dsrun help`. The same layout when
// built and when installed.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

class ShareFolder {
 public:
  explicit ShareFolder(std::filesystem::path root) : root_(std::move(root)) {}
  // The one that belongs to the running program.
  static StatusOr<ShareFolder> OfThisProgram();

  std::filesystem::path default_config() const { return root_ / "configs/default_ds_config.json"; }
  std::filesystem::path demo_corpus() const { return root_ / "demo_corpus.txt"; }
  // The config.json of a model preset; it need not exist.
  std::filesystem::path preset(const std::string& name) const {
    return root_ / "configs/models" / (name + ".json");
  }
  // The file of a recipe; it need not exist.
  std::filesystem::path recipe(const std::string& name) const {
    return root_ / "configs/recipes" / (name + ".json");
  }
  // The file of a page of the manual; it need not exist.
  std::filesystem::path manual_page(const std::string& name) const;
  // Names of the model presets, of the recipes and of the manual's pages, sorted.
  std::vector<std::string> Presets() const;
  std::vector<std::string> Recipes() const;
  std::vector<std::string> ManualPages() const;

 private:
  std::filesystem::path root_;
};

}  // namespace ds::cli
