#!/usr/bin/env python3
"""The Python package on one GPU: losses against PyTorch's at each stage, offloaded, on another stream.

    python_test.py --bin DIR [--python PATH]      as tests/python/trainers_test.py

Skipped where the interpreter's PyTorch finds no GPU.
"""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

from trainers_test import exit_without, parse_options  # noqa: E402

PROGRAM = """
import contextlib, torch, dsrun

def make():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 8)).cuda()

def losses(call, step):
    values = []
    for index in range(5):
        inputs = torch.linspace(-1, 1, 16, device="cuda").view(2, 8) * (index + 1)
        loss = call(inputs).square().mean()
        step(loss)
        values.append(loss.item())
    return values

plain = make()
adam = torch.optim.AdamW(plain.parameters(), lr=1e-2, weight_decay=0.0)
def step_plain(loss):
    loss.backward()
    adam.step()
    adam.zero_grad()
expected = losses(plain, step_plain)

offload = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
for stage, more, other_stream in ((0, {}, False), (1, {}, False), (2, {}, True), (3, {}, False), (3, offload, False)):
    engine, *_ = dsrun.initialize(model=make().cpu(), config={
        "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.0}},
        "zero_optimization": {"stage": stage, **more}})
    assert engine.device == torch.device("cuda", torch.cuda.current_device()), engine.device
    def step(loss):
        engine.backward(loss)
        engine.step()
    if stage < 3:
        engine.offload_states()
        try:
            engine.module[0].weight.sum()
            raise AssertionError("no error")
        except RuntimeError as error:
            assert "parameter 0.weight has been moved" in str(error), error
        engine.reload_states()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream) if other_stream else contextlib.nullcontext():
        found = losses(engine, step)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-5, atol=1e-6)
    engine.destroy()
print("all is well")
"""


def main():
    options = parse_options()
    package = os.environ.get("PYTHONPATH", options.bin.parent / "python")
    environment = dict(os.environ, PYTHONPATH=str(package))
    check = subprocess.run([options.python, "-c", "import torch; print(torch.cuda.is_available())"],
                           capture_output=True, text=True, check=False)
    if check.stdout.strip() != "True":
        exit_without("gpu", "PyTorch finds no GPU")
    result = subprocess.run([options.python, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    print(result.stdout + result.stderr)
    sys.exit(0 if "all is well" in result.stdout else 1)


if __name__ == "__main__":
    main()
