# Builds for aarch64 on another processor, with Debian's cross compiler (preset aarch64). Headers and libraries are those
# of the arm64 packages that scripts/test_aarch64.sh unpacks. What the build itself runs of its programs runs in QEMU.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(DS_AARCH64_ROOT ${CMAKE_CURRENT_LIST_DIR}/../../.deps/aarch64/root CACHE PATH "Root folder of an arm64 system")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DS_AARCH64_ROOT)
file(REAL_PATH ${DS_AARCH64_ROOT} CMAKE_SYSROOT)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${CMAKE_SYSROOT})

# protoc and the plugin of gRPC are this machine's, of the same release as the libraries.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
