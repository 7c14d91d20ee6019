#!/usr/bin/env python3
"""Makes the wheel `dsrun` from a build folder, for the Python that runs this: the wheel of `pip wheel .` (pyproject.toml)
without compiling.

    make_wheel.py [--build DIR] OUT        into the folder OUT; prints the wheel's path

Needs the packages scikit-build-core and wheel, and a finished build (scripts/setup.sh). Uses no network.
"""

import argparse
import contextlib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def fail(message):
    sys.exit(f"make_wheel.py: {message}")


def install(build, stage):
    """Installs the component Python: the folders platlib, scripts and data."""
    command = ["cmake", "--install", build, "--prefix", stage, "--component", "Python", "--strip"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        fail(f"`{' '.join(map(str, command))}` failed; is the build finished?\n{done.stdout}")
    if not (stage / "platlib").is_dir():
        fail(f"{build} has no Python package: it needs Python's headers and a LibTorch of a wheel for that Python")


def write_metadata(platlib):
    """Writes NAME-VERSION.dist-info, without RECORD, and returns NAME-VERSION."""
    from scikit_build_core.build import prepare_metadata_for_build_wheel
    os.chdir(ROOT)
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        name = prepare_metadata_for_build_wheel(str(platlib))
    return name.removesuffix(".dist-info")


def check(platlib, name):
    """Ends the program unless the build is for this Python and for the PyTorch that the version names."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    if not (platlib / f"dsrun/_native{suffix}").exists():
        built = [path.name for path in platlib.glob("dsrun/_native*")]
        fail(f"this Python loads _native{suffix}, and the build has {', '.join(built)}: run this script by that Python")
    text = (platlib / "dsrun/_torch_version.py").read_text(encoding="utf-8")
    major, minor = re.search(r'BUILT_FOR = "(\d+)\.(\d+)', text).groups()
    if not name.endswith(f"+pt{major}{minor}"):
        fail(f"pyproject.toml makes {name}, and the build is for PyTorch {major}.{minor}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (default: build)")
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    missing = [name for name in ("scikit_build_core", "wheel") if importlib.util.find_spec(name) is None]
    if missing:
        fail(f"{sys.executable} lacks {' and '.join(missing)}: pip install scikit-build-core==1.1.2 wheel")
    build, out = options.build.resolve(), options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        stage = pathlib.Path(folder)
        platlib = stage / "platlib"
        install(build, stage)
        name = write_metadata(platlib)
        check(platlib, name)
        for part in ("scripts", "data"):
            (platlib / f"{name}.data").mkdir(exist_ok=True)
            (stage / part).rename(platlib / f"{name}.data" / part)
        for older in out.glob(f"{name}-*.whl"):
            older.unlink()
        subprocess.run([sys.executable, "-m", "wheel", "pack", platlib, "-d", out], stdout=subprocess.DEVNULL, check=True)
    wheel, = out.glob(f"{name}-*.whl")
    print(wheel)


if __name__ == "__main__":
    main()
