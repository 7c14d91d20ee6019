#pragma once

// Says what dsrun and dsrank ask of the Arrow plugin, a library that is loaded when a Parquet or
// Arrow file is read: Arrow's own libraries are larger than both programs together, and few need
// them.
//
// Plain C, so that nothing of the plugin's C++ meets theirs. Threads: a file belongs to one.

#include <cstddef>
#include <cstdint>

extern "C" {

struct DsRowFile;  // an open file

struct DsArrowPlugin {
  // Opens a file of either format; null, and what is wrong with it in `error`, where it cannot.
  DsRowFile* (*open)(const char* path, char* error, std::size_t error_size);
  // The next rows as JSON objects, a line each, which are there until the next call: how many; 0 at
  // the end; -1, and what is wrong in `error`, where they cannot be read. arrow_values.h says what
  // stands for values that JSON has not.
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
