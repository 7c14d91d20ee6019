#pragma once

// LoadProgram reads the program of this process and its libraries into memory and maps them. The
// kernel otherwise reads code when it first runs. If the file system of the program hangs by then,
// so does the process, and the code that stops a job often runs for the first time when it does.
//
// Processes that execute the same file share the pages: one that lives as long as the others loads
// them for all. Nothing is locked, because most users may lock 8 MiB only. So the kernel may drop
// pages later, when memory is short, or when another process opens the file on a FUSE file system
// without a lasting cache.

namespace ds {

// Blocks until everything is read: half a millisecond for 25 MB that the kernel has in its cache,
// for ever if the file system hangs. A page that cannot be read ends this for its segment: the
// pages from there on are only requested, neither awaited nor mapped. Before Linux 5.14 this holds
// for all pages.
//
// Thread-safe.
void LoadProgram();

}  // namespace ds
