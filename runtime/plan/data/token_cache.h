#pragma once

// TokenCache: texts as the token ids of a model's tokenizer, cut once on a host and kept in a
// folder with a manifest.
//
// It is a folder of the host's cache (host_cache.h), found by the data files (path, size, time of
// change), the tokenizer's files (their bytes) and the choices of TokenRequest.
//
// Data and ids are streamed: memory is that of a batch of lines, or of the largest text file.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/plan/data/cut_texts.h"

namespace ds::data {

struct CachedTokens {
  std::filesystem::path folder;
  std::int64_t id_bytes = 2;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  bool all_learnt = true;  // else the file `learnt` says of each token whether it is
  LeftOutTexts left_out;
  bool was_there = false;  // nothing had to be cut

  std::filesystem::path ids_file() const { return folder / "tokens.bin"; }
  // DocumentIndex reads it.
  std::filesystem::path documents_file() const { return folder / "documents.bin"; }
  // It has a byte for each token.
  std::filesystem::path learnt_file() const { return folder / "learnt.bin"; }
};

// Finds where the caches of this user are: $XDG_CACHE_HOME/dsrun, else ~/.cache/dsrun. Fails when
// the environment names neither.
StatusOr<std::filesystem::path> DefaultCacheRoot();

// Finds the tokens under `root`, or cuts them. `progress` is told the share that is done, between 0
// and 1. Errors name file and line of a text that cannot be used.
StatusOr<CachedTokens> FindOrCutTokens(const TokenRequest& request,
                                       const std::filesystem::path& root,
                                       const std::function<void(double share)>& progress,
                                       FileSystem& system = FileSystem::System());

}  // namespace ds::data
