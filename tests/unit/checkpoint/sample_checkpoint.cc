#include "tests/unit/checkpoint/sample_checkpoint.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <span>
#include <sstream>

#include "runtime/checkpoint_format/catalog.h"
#include "runtime/checkpoint_format/commit.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/latest.h"
#include "runtime/checkpoint_format/shard_file_writer.h"
#include "runtime/checkpoint_format/verify.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

StatusOr<StoredShard> WriteFloats(ShardFileWriter* writer, std::span<const float> values,
                                  std::int64_t flat_start) {
  writer->BeginShard();
  DS_RETURN_IF_ERROR(writer->Append(std::as_bytes(values)));
  return writer->EndShard({Boxes{}, flat_start, static_cast<std::int64_t>(values.size())});
}

}  // namespace

StatusOr<Manifest> WriteSampleFiles(const fs::path& directory, std::int64_t step,
                                    FileSystem& system) {
  std::vector<float> values(3000);
  std::iota(values.begin(), values.end(), static_cast<float>(step));
  const std::span<const float> all(values);
  DS_ASSIGN_OR_RETURN(ShardFileWriter first,
                      ShardFileWriter::Create(directory / ShardFileName(0), system));
  DS_ASSIGN_OR_RETURN(ShardFileWriter second,
                      ShardFileWriter::Create(directory / ShardFileName(1), system));
  DS_ASSIGN_OR_RETURN(StoredShard head, WriteFloats(&first, all.first(1100), 0));
  DS_ASSIGN_OR_RETURN(StoredShard tail, WriteFloats(&second, all.subspan(1100), 1100));
  DS_ASSIGN_OR_RETURN(StoredShard bias, WriteFloats(&second, all.first(10), 0));
  DS_RETURN_IF_ERROR(first.Finish());
  DS_RETURN_IF_ERROR(second.Finish());
  Manifest manifest;
  manifest.step = step;
  manifest.state = {{"engine", {{"loss_scale", 65536.0}, {"step", step}}}};
  manifest.tensors = {{"weight", "float32", {60, 50}, {std::move(head), std::move(tail)}},
                      {"bias", "float32", {10}, {std::move(bias)}}};
  return manifest;
}

StatusOr<fs::path> TryCommitSample(const fs::path& root, std::int64_t step, FileSystem& system,
                                   Lineage* lineage) {
  const std::optional<Lineage> told = lineage != nullptr ? std::optional(*lineage) : std::nullopt;
  DS_ASSIGN_OR_RETURN(const UnfinishedCheckpoint unfinished,
                      BeginCheckpoint(root, step, told, system));
  StatusOr<Manifest> manifest =
      WriteSampleFiles(UnfinishedDirectory(root, unfinished.name), step, system);
  if (manifest.ok()) manifest->lineage = told;
  StatusOr<fs::path> committed =
      manifest.ok() ? CommitCheckpoint(unfinished, *manifest, system) : manifest.status();
  if (!committed.ok()) AbandonCheckpoint(unfinished, system);
  if (committed.ok() && lineage != nullptr) {
    *lineage = ContinueLineage(*lineage, step, *lineage);
  }
  return committed;
}

fs::path CommitSample(const fs::path& root, std::int64_t step, Lineage* lineage) {
  StatusOr<fs::path> directory = TryCommitSample(root, step, FileSystem::System(), lineage);
  EXPECT_TRUE(directory.ok()) << directory.status().message();
  return directory.value();
}

Lineage ResumeSample(const fs::path& root, std::int64_t step, std::int64_t generation,
                     std::int64_t start) {
  const fs::path directory = root / StepDirectoryName(step);
  EXPECT_TRUE(TakeOver(directory, generation, start).ok());
  const Manifest manifest = ReadManifest(directory).value();
  const Lineage parent = manifest.lineage.value_or(AssumeLineage(step));
  return ContinueLineage(parent, step, {.generation = generation, .start = start});
}

Lineage CommitTenAndTwenty(const fs::path& root, FileSystem& system) {
  Lineage lineage, after_ten;
  for (const int step : {10, 20}) {
    const auto committed = TryCommitSample(root, step, system, &lineage);
    EXPECT_TRUE(committed.ok()) << committed.status().message();
    if (step == 10) after_ten = lineage;
  }
  return after_ten;
}

void ExpectGoodCheckpoints(const fs::path& root, std::int64_t at_least) {
  const std::vector<ListedCheckpoint> all = ListCheckpoints(root).value();
  for (const ListedCheckpoint& listed : all) {
    const VerifyReport report = VerifyCheckpoint(listed.directory).value();
    EXPECT_TRUE(report.ok()) << Describe(report.damages.front());
  }
  const NewestCheckpoint newest = FindNewestGood(root).value();
  ASSERT_TRUE(newest.found.has_value());
  EXPECT_GE(newest.found->step, at_least);
}

std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
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
