// The description of a decoder names the parameters and shapes that the built one has, and the
// layers that take adapters: what is refused by the one is refused by the other.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "runtime/models/decoder/build_model.h"
#include "runtime/models/layers/lora.h"
#include "runtime/plan/memory/trainable_parameters.h"
#include "tests/unit/models/golden_folder.h"

namespace ds::models {
namespace {

namespace fs = std::filesystem;
using Shapes = std::map<std::string, std::vector<std::int64_t>>;

std::vector<fs::path> ListFolders() {
  std::vector<fs::path> folders = {GoldenFolder() / "gpt2", GoldenFolder() / "llama"};
  for (const char* of : {"families", "variants"}) {
    for (const auto& entry : fs::directory_iterator(GoldenFolder() / of)) {
      if (entry.is_directory()) folders.push_back(entry.path());
    }
  }
  return folders;
}

Shapes ShapesOf(const BlockList& model) {
  Shapes shapes;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      const auto sizes = item.value().sizes();
      shapes[block->FullName(item.key())] = {sizes.begin(), sizes.end()};
    }
  }
  return shapes;
}

TEST(StoredParameters, AreThoseOfTheBuiltModel) {
  for (const fs::path& folder : ListFolders()) {
    SCOPED_TRACE(folder);
    const ModelConfig config = ReadModelConfig(folder.string()).value();
    const auto model = BuildModel(config, at::TensorOptions(at::kFloat));
    Shapes described;
    for (const StoredParameter& each : ListStored(config.decoder))
      described[each.name] = each.shape;
    EXPECT_EQ(described, ShapesOf(*model));
    LoraSpec all{.rank = 1};
    ASSERT_TRUE(AddLora(*model, &all).ok());
    std::vector<std::string> layers = ListNames(ListBlockSizes(config.decoder)).layers;
    std::sort(layers.begin(), layers.end());
    std::vector<std::string> adapted;
    for (const auto& [layer, adapter] : all.layers) adapted.push_back(layer);
    EXPECT_EQ(layers, adapted);
  }
}

}  // namespace
}  // namespace ds::models
