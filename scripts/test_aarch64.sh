#!/usr/bin/env bash
# Builds dsrun for aarch64 on an x86-64 machine with Debian 12, and tests it in a virtual machine: QEMU emulates the
# processor, the kernel is Debian's for arm64. QEMU's emulation of single programs (qemu-user) runs what the build
# needs of its own programs. It cannot start ranks: it rejects a clone() with CLONE_VM and without CLONE_VFORK.
#
#   scripts/test_aarch64.sh                  the tests without LibTorch, and ranks in their control groups
#   scripts/test_aarch64.sh 'LaunchTest.*'   instead, tests with real processes, by a filter of GoogleTest
#   AARCH64_DIR=DIR scripts/test_aarch64.sh  the arm64 packages and the machine in DIR, not in .deps/aarch64 (2 GB)
#
# The packages come from where apt gets those of this machine. The build takes half an hour on two processors, later only
# what has changed.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(realpath -m "${AARCH64_DIR:-.deps/aarch64}")
root=$dir/root
build_dir=$(realpath -m "${BUILD_DIR:-build-aarch64}")
# Beside the headers and libraries of scripts/debian-packages.txt: the kernel, and what the tests call.
packages=(bash cmake coreutils dash findutils grep iproute2 libc-bin linux-image-cloud-arm64 mount openssh-client procps
  python3 sed util-linux)

say() { printf 'test_aarch64: %s\n' "$*" >&2; }

# Makes the folder, which nobody else uses: its mark says so.
claim_folder() {
  if [ ! -e "$dir/.dsrun-aarch64" ] && [ -n "$(ls -A "$dir" 2>/dev/null)" ]; then
    say "$dir is not a folder that this script has made: name an empty one" && exit 2
  fi
  mkdir -p "$dir"
  touch "$dir/.dsrun-aarch64"
}

# Runs a tool of apt for an arm64 system that has no packages yet, with lists of its own.
foreign_apt() { APT_CONFIG=$dir/apt.conf "$@" >&2; }

make_root() {
  local mark=$dir/complete each
  mapfile -t -O "${#packages[@]}" packages < <(grep -e '-dev$' scripts/debian-packages.txt)
  [ -e "$mark" ] && [ "$(cat "$mark")" = "${packages[*]}" ] && return
  say "unpacking Debian's packages for arm64 into $root"
  rm -rf "$root" "$mark"
  mkdir -p "$dir"/{lists,cache/archives}/partial "$root"/usr/{bin,lib,sbin}
  : >"$dir/status"
  cat >"$dir/apt.conf" <<EOF
APT { Architecture "arm64"; Architectures { "arm64"; }; Sandbox::User ""; };
Dir { State "$dir"; State::lists "$dir/lists"; State::status "$dir/status"; Cache "$dir/cache"; };
EOF
  foreign_apt apt-get update -qq
  foreign_apt apt-get install -qq -y --no-install-recommends --download-only "${packages[@]}"
  for each in bin lib sbin; do ln -s "usr/$each" "$root/$each"; done
  for each in "$dir"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$each" | tar -x -C "$root" --keep-directory-symlink
  done
  foreign_apt apt-get clean
  printf '%s' "${packages[*]}" >"$mark"
}

# The first process of the machine: it runs the tests and switches the machine off. The arguments are commands.
print_init() {
  cat <<EOF
#!/bin/sh
export PATH=/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 TERM=dumb
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir /dev/shm /dev/pts
mount -t tmpfs none /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs none /tmp
mount -t cgroup2 none /sys/fs/cgroup
echo '+memory +pids' >/sys/fs/cgroup/cgroup.subtree_control
ip link set lo up
echo emulated >/proc/sys/kernel/hostname
ldconfig
uname -srm
cd '$build_dir'
# A test that needs one of these must not skip itself.
export DSRUN_REQUIRE=cgroups,memory_groups,mounts,namespaces,root
status=0
$(printf '%s || status=1\n' "$@")
echo "The tests ended with status \$status"
echo o >/proc/sysrq-trigger
sleep 60
EOF
}

# Packs the machine's files: what the packages have for running programs, the sources, and the programs without what
# debuggers need.
make_machine() {
  local machine=$dir/machine
  rm -rf "$machine"
  mkdir -p "$machine/$PWD" "$machine/$build_dir"
  tar -c -C "$root" --exclude='*.a' --exclude=./boot --exclude=./usr/include --exclude=./usr/lib/modules \
    --exclude=./usr/share/{doc,locale,man} . | tar -x -C "$machine"
  mkdir -p "$machine"/{dev,proc,sys,tmp,root,run,etc}
  echo 'root:x:0:0:root:/root:/bin/bash' >"$machine/etc/passwd"
  echo 'root:x:0:' >"$machine/etc/group"
  echo '127.0.0.1 localhost emulated' >"$machine/etc/hosts"
  git ls-files -z | tar -c --null -T - | tar -x -C "$machine/$PWD"
  (cd "$build_dir" && find bin share tests -path '*/CMakeFiles' -prune -o ! -type d ! -name '*.debug' -print0 &&
    find . -name CTestTestfile.cmake -print0) | tar -c -C "$build_dir" --null -T - | tar -x -C "$machine/$build_dir"
  find "$machine/$build_dir"/{bin,tests} -type f -executable -exec aarch64-linux-gnu-strip {} +
  # ctest has to start the programs by the emulator of the build, which they do not need in there.
  printf '#!/bin/sh\nshift 2\nexec "$@"\n' >"$machine/usr/bin/qemu-aarch64-static"
  print_init "$@" >"$machine/init"
  chmod 755 "$machine/usr/bin/qemu-aarch64-static" "$machine/init"
  (cd "$machine" && find . -print0 | cpio --null --create --quiet --format=newc --owner=0:0) >"$dir/machine.cpio"
}

# A processor without authentication of pointers, with which the kernel is four times as slow in QEMU.
run_machine() {
  say "starting the machine"
  timeout 2h qemu-system-aarch64 -machine virt -cpu neoverse-n1 -smp "$(nproc)" -m 4G -nographic -no-reboot -nic none \
    -kernel "$root"/boot/vmlinuz-* -initrd "$dir/machine.cpio" -append 'console=ttyAMA0 quiet panic=-1' </dev/null |
    tee "$dir/machine.log"
  grep -q '^The tests ended with status 0' "$dir/machine.log"
}

scripts/setup.sh --packages scripts/aarch64-packages.txt
claim_folder
make_root
BUILD_DIR=$build_dir scripts/setup.sh --preset aarch64 --target quick_tests --target test_procs \
  -DDS_AARCH64_ROOT="$root"
if [ $# -eq 1 ]; then
  make_machine "tests/test_procs --gtest_filter='$1'"
else
  # Without a hundred jobs of 64 ranks: in the emulator their daemon falls behind its lease.
  make_machine "ctest --output-on-failure -L quick -j $(nproc)" \
    "tests/test_procs --gtest_filter='EvidenceTest.*:LeftoversTest.*-*.OfAHundredJobsOf64Ranks'"
fi
run_machine
