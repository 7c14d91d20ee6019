#!/usr/bin/env python3
"""The wheel `dsrun` in a fresh virtual environment: it is made from the build, installed, and used by its own programs.

    wheel_test.py --bin DIR [--python PATH]      as trainers_test.py; PATH also makes the wheel (scripts/make_wheel.py)

PyTorch (5 GB) is not installed again: the environment has a link to PATH's PyTorch, and a .pth file that shows the
packages that PyTorch requires. PATH has no dsrun, so `import dsrun` finds what pip has installed. No compiler and no
folder of the build are on the search paths.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

from trainers_test import ROOT, parse_options

# What the example of the page needs of the user.
BEFORE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Embedding(8, 16), torch.nn.Linear(16, 8)])

    def forward(self, tokens, labels):
        for layer in self.layers:
            tokens = layer(tokens)
        return torch.nn.functional.cross_entropy(tokens, labels)

torch.manual_seed(1)
model = Model()
dataset = [(torch.tensor(i % 8), torch.tensor(i % 8)) for i in range(64)]
"""
AFTER = """
    if engine.step_result.step in (1, 8) and dsrun.comm.get_rank() == 0:
        print("ranks", dsrun.comm.get_world_size(), "step", engine.global_steps, "loss", engine.step_result.loss)
"""
CONFIG = """{"train_batch_size": 8, "zero_optimization": {"stage": 3},
             "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}"""
INTERACTIVE = """
import torch, dsrun
config = {"train_batch_size": 1, "optimizer": {"type": "SGD", "params": {"lr": 1.0}}}
engine, *_ = dsrun.initialize(model=torch.nn.Linear(2, 1), config=config)
raise KeyError("a slip")
engine.backward(engine(torch.ones(1, 2)).sum())
engine.step()
print("steps", engine.global_steps, "rank", dsrun.comm.get_rank())
"""


def example_of_page():
    """The training loop of the manual's page, with what it needs before and prints of its losses after each step."""
    text = (ROOT / "cli/manual/python.md").read_text(encoding="utf-8")
    block = textwrap.dedent(re.search(r"\n\n((?:    .*\n|\n)*?    import dsrun\n(?:    .*\n|\n)*)", text).group(1))
    step = "    engine.step()\n"
    assert step in block, block
    return BEFORE + block.replace(step, step + AFTER.lstrip("\n"))


def example_of_readme():
    """The whole script of README.md."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return textwrap.dedent(re.search(r"\n\n((?:    .*\n|\n)*?    import dsrun\n(?:    .*\n|\n)*)", text).group(1))


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name).resolve()
        cls.environment = cls.folder / "environment"
        made = cls.call([OPTIONS.python, ROOT / "scripts/make_wheel.py", "--build", OPTIONS.bin.parent, cls.folder])
        cls.wheel = pathlib.Path(made.strip())
        cls.call([OPTIONS.python, "-m", "venv", "--without-pip", cls.environment])
        show = "import pathlib, torch; print(pathlib.Path(torch.__file__).parent)"
        torch = pathlib.Path(cls.call([OPTIONS.python, "-c", show]).strip())
        packages, = cls.environment.glob("lib/python*/site-packages")
        (packages / "torch").symlink_to(torch)
        (packages / "requirements_of_torch.pth").write_text(f"{torch.parent}\n", encoding="utf-8")
        # Not --no-deps: pip looks for the release of PyTorch that the wheel requires, and may not download.
        cls.call([OPTIONS.python, "-m", "pip", "--python", cls.environment / "bin/python", "install", "--no-index",
                  "--disable-pip-version-check", "--quiet", cls.wheel])
        (cls.folder / "train.py").write_text(example_of_page(), encoding="utf-8")
        (cls.folder / "my_module.py").write_text(example_of_readme(), encoding="utf-8")
        (cls.folder / "ds_config.json").write_text(CONFIG, encoding="utf-8")

    @classmethod
    def call(cls, command, **options):
        """What the command prints; an error of the test if it fails."""
        result = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                check=False, **options)
        if result.returncode != 0:
            raise AssertionError(f"{command} ends with {result.returncode}:\n{result.stdout}{result.stderr}")
        return result.stdout

    def run_installed(self, program, *arguments, text=""):
        """As a user of the environment does: nothing but its bin is on PATH."""
        variables = {"PATH": str(self.environment / "bin"), "HOME": str(self.folder), "OMP_NUM_THREADS": "1",
                     "CUDA_VISIBLE_DEVICES": "", "TMPDIR": str(self.folder)}
        return self.call([self.environment / "bin" / program, *arguments], cwd=self.folder, env=variables, input=text)

    def check_losses(self, output, ranks):
        losses = re.findall(rf"ranks {ranks} step (\d+) loss (\S+)", output)
        self.assertEqual([step for step, _ in losses], ["1", "8"], output)
        self.assertLess(float(losses[1][1]), float(losses[0][1]), output)

    def test_the_example_runs_on_one_rank_and_on_two(self):
        alone = self.run_installed("python", "train.py")
        self.check_losses(alone, 1)
        self.check_losses(self.run_installed("dsrun", "-n", "1", "train.py"), 1)
        self.check_losses(self.run_installed("dsrun", "-n", "2", "train.py"), 2)

    def test_the_example_of_the_readme_runs(self):
        losses = [float(loss) for loss in re.findall(r"step \d+  loss (\S+)$", self.run_installed(
            "dsrun", "-n", "2", "my_module.py"), re.MULTILINE)]
        self.assertEqual(len(losses), 4)
        self.assertLess(losses[3], 0.5 * losses[0])

    def test_the_package_is_the_environments(self):
        text = ("import dsrun, importlib.metadata as m\n"
                "print(dsrun.__file__, dsrun._native.__file__, m.version('dsrun'), m.requires('dsrun'))")
        package, native, version, requires = self.run_installed("python", "-c", text).split(" ", 3)
        self.assertTrue(pathlib.Path(package).is_relative_to(self.environment), package)
        self.assertTrue(pathlib.Path(native).is_relative_to(self.environment), native)
        self.assertRegex(version, r"^\d+\.\d+\.\d+\+pt211$")
        self.assertIn("torch==2.11.*", requires)

    def test_another_pytorch_is_told_its_wheel(self):
        text = ("import torch\ntorch.__version__ = '2.12.1+cu130'\ntry:\n    import dsrun\n"
                "except ImportError as error:\n    print(error)")
        self.assertIn("PyTorch 2.12.1+cu130 is installed: install the wheel of dsrun with +pt212 in its version",
                      self.run_installed("python", "-c", text))

    def test_a_session_without_a_launcher_trains(self):
        self.assertIn("steps 1 rank 0", self.run_installed("python", "-i", text=INTERACTIVE))

    def test_the_programs_work(self):
        self.assertIn("at step 2", self.run_installed("dsrun", "-n", "2", "train", "--steps", "2"))
        for program in ("dsrun", "dsrund", "dsrank"):
            self.assertRegex(self.run_installed(program, "--version"), rf"^{program} \d+\.\d+\.\d+\b")
        for page in ("man/man1/dsrun.1", "man/man7/dsrun-python.7", "bash-completion/completions/dsrun"):
            self.assertGreater((self.environment / "share" / page).stat().st_size, 0, page)

    def test_nothing_refers_to_the_build(self):
        build = OPTIONS.bin.parent
        # Not of the LibTorch that it was compiled with: its headers' assertions have their own paths.
        runpath = re.compile(r"\((?:RUNPATH|RPATH)\)\s+Library r(?:un)?path: \[(.*)\]")
        files = [path for path in self.environment.rglob("*") if path.is_file() and not path.is_symlink()]
        programs = [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]
        self.assertGreaterEqual(len(programs), 4)
        for path in files:
            for place in (build, build.resolve()):
                self.assertNotIn(f"{place}/".encode(), path.read_bytes(), path)
        for path in programs:
            for found in runpath.findall(self.call(["readelf", "-d", path])):
                self.assertEqual([place for place in found.split(":") if not place.startswith("$ORIGIN/")], [], path)


if __name__ == "__main__":
    OPTIONS = parse_options()
    unittest.main(argv=sys.argv[:1])
