#pragma once

// The C interface of the Arrow plugin, a library that dsrun and dsrank load when they read a
// Parquet or Arrow file. It is a plugin because Arrow's own libraries are larger than both programs
// together, and few users need them.
//
// Plain C, so that the C++ symbols of the plugin and of the programs do not mix. Each file must be
// used by one thread only.

#include <cstddef>
#include <cstdint>

extern "C" {

struct DsRowFile;  // an open file

struct DsArrowPlugin {
  // Opens a file of either format. On failure returns null and writes the reason to `error`.
  DsRowFile* (*open)(const char* path, char* error, std::size_t error_size);
  // Reads the next rows as JSON objects, one per line, valid until the next call. Returns their
  // number; 0 at the end; on failure -1, with the reason in `error`. arrow_values.h defines the
  // encoding of values that JSON cannot represent.
  std::int64_t (*next)(DsRowFile* file, const char** lines, std::size_t* size, char* error,
                       std::size_t error_size);
  void (*close)(DsRowFile* file);
};

using DsArrowPluginEntry = const DsArrowPlugin* (*)(int version);
}

namespace ds::tokenizer {

inline constexpr char kArrowPluginFile[] = "libdsrun_arrow.so";
inline constexpr char kArrowPluginEntry[] = "ds_arrow_plugin";
inline constexpr int kArrowPluginVersion = 2;

}  // namespace ds::tokenizer
