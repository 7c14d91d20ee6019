#include "tests/unit/checkpoint/sample_checkpoint.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <span>
#include <sstream>

#include "runtime/checkpoint/format/commit.h"
#include "runtime/checkpoint/format/file_names.h"
#include "runtime/checkpoint/format/shard_file.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

StoredShard WriteFloats(ShardFileWriter* writer, std::span<const float> values,
                        std::int64_t flat_start) {
  writer->BeginShard();
  EXPECT_TRUE(writer->Append(std::as_bytes(values)).ok());
  return writer->EndShard({std::nullopt, flat_start, static_cast<std::int64_t>(values.size())});
}

ShardFileWriter WriterOf(const fs::path& directory, int rank) {
  const std::string name = ShardFileName(rank);
  return {CreateDataFile(directory / name).value(), name};
}

}  // namespace

Manifest WriteSampleFiles(const fs::path& directory, std::int64_t step) {
  std::vector<float> values(3000);
  std::iota(values.begin(), values.end(), static_cast<float>(step));
  const std::span<const float> all(values);
  ShardFileWriter first = WriterOf(directory, 0);
  ShardFileWriter second = WriterOf(directory, 1);
  Manifest manifest;
  manifest.step = step;
  manifest.state = {{"engine", {{"loss_scale", 65536.0}, {"step", step}}}};
  manifest.tensors = {
      {"weight",
       "float32",
       {60, 50},
       {WriteFloats(&first, all.first(1100), 0), WriteFloats(&second, all.subspan(1100), 1100)}},
      {"bias", "float32", {10}, {WriteFloats(&second, all.first(10), 0)}}};
  EXPECT_TRUE(first.Sync().ok());
  EXPECT_TRUE(second.Sync().ok());
  return manifest;
}

fs::path CommitSample(const fs::path& root, std::int64_t step) {
  EXPECT_TRUE(BeginCheckpoint(root, step).ok());
  const Manifest manifest = WriteSampleFiles(UnfinishedDirectory(root, step), step);
  StatusOr<fs::path> directory = CommitCheckpoint(root, manifest);
  EXPECT_TRUE(directory.ok()) << directory.status().message();
  return directory.value();
}

void FlipBit(const fs::path& file, std::uint64_t offset) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(stream.get());
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.put(static_cast<char>(byte ^ 0x10));
  ASSERT_TRUE(stream.good()) << file;
}

std::string Slurp(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace ds::checkpoint
