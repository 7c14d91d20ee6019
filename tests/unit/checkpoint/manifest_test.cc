#include "runtime/checkpoint_format/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "runtime/checkpoint_format/crc32c.h"
#include "runtime/checkpoint_format/file_names.h"

namespace ds::checkpoint {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Manifest Sample() {
  Manifest manifest;
  manifest.step = 20;
  manifest.written_by = {{"program", "dsrun 0.1.0"}, {"world_size", 2}};
  manifest.state = {{"engine", {{"lr", 0.1}, {"loss_scale", 65536.0}}},
                    {"data", {{"sample", 12345678901}}}};
  manifest.lineage = {3, {{0, 10}, {3, 15}}};
  StoredTensor weight{"h.0.weight", "float32", {2, 3}, {}};
  weight.shards.push_back({Region{Boxes{}, 0, 4}, "rank-00000.bin", 0, 16, {0xDEADBEEF}});
  weight.shards.push_back({Region{Boxes{}, 4, 2}, "rank-00001.bin", 4096, 8, {1}});
  StoredTensor scalar{"scalar", "bfloat16", {}, {}};
  scalar.shards.push_back({Region{Boxes{}, 0, 1}, "rank-00000.bin", 4096, 2, {7}});
  StoredTensor columns{"cut.in.columns", "float16", {2, 4}, {}};
  columns.shards.push_back(
      {Region{Boxes{Box{{0, 0}, {2, 2}}}, 0, 4}, "rank-00000.bin", 8192, 8, {1}});
  columns.shards.push_back(
      {Region{Boxes{Box{{0, 2}, {2, 2}}}, 0, 4}, "rank-00001.bin", 8192, 8, {2}});
  StoredTensor fused{"cut.in.several", "int8", {4, 2}, {}};
  for (const std::int64_t row : {0, 1}) {
    const Boxes rows{Box{{row, 0}, {1, 2}}, Box{{row + 2, 0}, {1, 2}}};
    fused.shards.push_back({Region{rows, 0, 4}, "rank-00000.bin", 12288, 4, {3}});
  }
  manifest.tensors = {weight, scalar, columns, fused};
  return manifest;
}

// Any JSON with a right trailer, so that what is behind the checksum gets tested.
std::string WithTrailer(const Json& json) {
  std::string body = json.dump();
  body.pop_back();
  body += ",";
  char trailer[32];
  std::snprintf(trailer, sizeof(trailer), "\n\"crc32c\":\"%08x\"}\n", Crc32c(body));
  return body + trailer;
}

Json SampleJson() {
  Json json = Json::parse(SerializeManifest(Sample()));
  json.erase("crc32c");
  return json;
}

TEST(Manifest, SurvivesItsText) {
  const StatusOr<Manifest> parsed = ParseManifest(SerializeManifest(Sample()));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(*parsed, Sample());
}

TEST(Manifest, DetectsEveryFlippedBitAndEveryTruncation) {
  const std::string text = SerializeManifest(Sample());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string flipped = text;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
    EXPECT_FALSE(ParseManifest(flipped).ok()) << "byte " << i;
    EXPECT_FALSE(ParseManifest(text.substr(0, i)).ok()) << "cut at " << i;
  }
}

TEST(Manifest, AnOlderOneHasNoLineage) {
  Json json = SampleJson();
  json.erase("lineage");
  EXPECT_EQ(ParseManifest(WithTrailer(json)).value().lineage, std::nullopt);
}

TEST(Manifest, AShardOfManyChunksHasAChecksumForEach) {
  Manifest manifest = Sample();
  const std::int64_t count = 2 * static_cast<std::int64_t>(kChunkBytes) + 1;
  manifest.tensors = {{"mask", "int8", {count}, {}}};
  manifest.tensors[0].shards = {
      {Region{Boxes{}, 0, count}, "rank-00000.bin", 0, 2 * kChunkBytes + 1, {1, 2, 3}}};
  EXPECT_EQ(ParseManifest(SerializeManifest(manifest)).value(), manifest);
  manifest.tensors[0].shards[0].crc32c = {1, 2};
  EXPECT_THAT(CheckManifest(manifest).message(), HasSubstr("has 2 checksums"));
  manifest.tensors[0].shards[0].crc32c = {1};
  EXPECT_THAT(CheckManifest(manifest).message(), HasSubstr("has 1 checksums"));
  EXPECT_FALSE(ParseManifest(SerializeManifest(manifest)).ok());
  manifest.version = 1;
  EXPECT_EQ(ParseManifest(SerializeManifest(manifest)).value(), manifest) << "as format 1 has it";
}

TEST(Manifest, ReadsFormatOne) {
  Json json = SampleJson();
  json["version"] = 1;
  Manifest expected = Sample();
  expected.version = 1;
  EXPECT_EQ(ParseManifest(WithTrailer(json)).value(), expected);
}

TEST(Manifest, RefusesAnotherVersionByName) {
  Json json = SampleJson();
  json["version"] = 3;
  const Status status = ParseManifest(WithTrailer(json)).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("version 3"));
}

struct Hostile {
  const char* what;
  std::function<void(Json&)> change;
  const char* message;
};

Json& FirstShard(Json& json) { return json["tensors"][0]["shards"][0]; }

TEST(Manifest, RefusesHostileNumbersAndNames) {
  const std::vector<Hostile> cases = {
      {"step", [](Json& j) { j["step"] = -1; }, "step is negative"},
      {"fraction", [](Json& j) { j["step"] = 1.5; }, "'step'"},
      {"huge", [](Json& j) { j["step"] = UINT64_MAX; }, "'step'"},
      {"state", [](Json& j) { j["state"] = 3; }, "'state'"},
      {"lineage", [](Json& j) { j["lineage"]["past"][1][0] = 0; }, "'lineage'"},
      {"tensors", [](Json& j) { j["tensors"] = Json::object(); }, "'tensors'"},
      {"tensor", [](Json& j) { j["tensors"][0] = 5; }, "object"},
      {"twice", [](Json& j) { j["tensors"][1] = j["tensors"][0]; }, "'h.0.weight' is listed twice"},
      {"dtype", [](Json& j) { j["tensors"][0]["dtype"] = "float3"; }, "'float3'"},
      {"shape",
       [](Json& j) {
         j["tensors"][0]["shape"] = {-2, -3};
       },
       "negative dimension"},
      {"overflow",
       [](Json& j) {
         j["tensors"][0]["shape"] = {1LL << 40, 1LL << 40};
       },
       "too large"},
      {"up", [](Json& j) { FirstShard(j)["file"] = "../../etc/passwd"; }, "plain name"},
      {"absolute", [](Json& j) { FirstShard(j)["file"] = "/etc/passwd"; }, "plain name"},
      {"dot", [](Json& j) { FirstShard(j)["file"] = ".."; }, "plain name"},
      {"nul", [](Json& j) { FirstShard(j)["file"] = std::string("a\0b", 3); }, "plain name"},
      {"offset", [](Json& j) { FirstShard(j)["offset"] = INT64_MAX; }, "too large"},
      {"length", [](Json& j) { FirstShard(j)["length"] = 15; }, "15 bytes"},
      {"start", [](Json& j) { FirstShard(j)["start"] = INT64_MAX; }, "leave"},
      {"count", [](Json& j) { FirstShard(j)["count"] = INT64_MAX; }, "leave"},
      {"negative", [](Json& j) { FirstShard(j)["count"] = -4; }, "leave"},
      {"overlap", [](Json& j) { FirstShard(j)["start"] = 1; }, "overlap"},
      {"hole", [](Json& j) { j["tensors"][0]["shards"].erase(1); }, "4 of its 6"},
      {"checksum", [](Json& j) { FirstShard(j)["crc32c"] = "DEADBEEF"; }, "crc32c"},
      {"no checksum", [](Json& j) { FirstShard(j)["crc32c"] = ""; }, "has 0 checksums"},
      {"two", [](Json& j) { FirstShard(j)["crc32c"] = "0000000100000002"; }, "has 2 checksums"},
      {"box",
       [](Json& j) {
         FirstShard(j)["box"] = {{"offset", {0}}, {"shape", {4}}};
       },
       "dimensions"},
      {"no box", [](Json& j) { FirstShard(j)["box"] = Json::array(); }, "a box or several"},
      {"boxes",
       [](Json& j) {
         j["tensors"][3]["shards"][0]["box"][1]["offset"] = {0, 0};
       },
       "adjacent"},
  };
  for (const Hostile& hostile : cases) {
    Json json = SampleJson();
    hostile.change(json);
    const StatusOr<Manifest> parsed = ParseManifest(WithTrailer(json));
    ASSERT_FALSE(parsed.ok()) << hostile.what;
    EXPECT_THAT(parsed.status().message(), HasSubstr(hostile.message)) << hostile.what;
  }
}

TEST(Manifest, RefusesRandomBytesWithAValidChecksum) {
  std::mt19937 random(3);
  const std::string text = SampleJson().dump();
  for (int trial = 0; trial < 2000; ++trial) {
    std::string body = text.substr(0, text.size() - 1) + ",";
    body[random() % body.size()] = static_cast<char>(random());
    char trailer[32];
    std::snprintf(trailer, sizeof(trailer), "\n\"crc32c\":\"%08x\"}\n", Crc32c(body));
    const StatusOr<Manifest> parsed = ParseManifest(body + trailer);
    if (parsed.ok()) {
      EXPECT_TRUE(CheckManifest(*parsed).ok());
    }
  }
}

TEST(Layout, AStepHasOneSpelling) {
  EXPECT_EQ(StepOfDirectoryName("step-20"), 20);
  EXPECT_EQ(StepOfDirectoryName("step-0"), 0);
  for (const char* name : {"step-", "step-020", "step-20.tmp", "step--1", "step-+1", "step- 1",
                           "Step-1", "step-99999999999999999999", "20", ""}) {
    EXPECT_EQ(StepOfDirectoryName(name), std::nullopt) << name;
  }
}

TEST(FileNames, ACheckpointsFilesAreKnown) {
  for (const char* name :
       {"manifest.json", "writer", "rank-00003.bin", "rank-123456.bin",
        "manifest.json.00c0ffee00c0ffee", "client_state.pt", ".nfs0001", ".fuse_hidden0001"}) {
    EXPECT_TRUE(IsCheckpointFile(name)) << name;
  }
  for (const char* name : {"notes.txt", "rank-3.bin", "rank-00003.bin.old", "rank-.bin", "latest",
                           "manifest.json.bak", "manifest.json.00C0FFEE00C0FFEE", "writer.txt"}) {
    EXPECT_FALSE(IsCheckpointFile(name)) << name;
  }
}

TEST(Layout, AnUnfinishedFolderHasOneSpelling) {
  const UnfinishedName name{20, 3, 0xc0ffee};
  EXPECT_EQ(UnfinishedDirectoryName(name), "step-20.tmp-3-0000000000c0ffee");
  EXPECT_EQ(ParseUnfinishedName("step-20.tmp-3-0000000000c0ffee"), name);
  for (const char* other :
       {"step-20", "step-20.tmp", "step-20.tmp-", "step-20.tmp-3", "step-20.tmp-3-",
        "step-20.tmp-3-c0ffee", "step-20.tmp--0000000000c0ffee", "step-20.tmp-3-0000000000C0FFEE",
        "step-x.tmp-3-0000000000c0ffee", "step-20.tmp-03-0000000000c0ffee",
        "step-20.tmp-3-0000000000c0ffee.d"}) {
    EXPECT_EQ(ParseUnfinishedName(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace ds::checkpoint
