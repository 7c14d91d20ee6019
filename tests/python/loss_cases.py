"""The runs whose losses are compared with DeepSpeed's, and their configs.

A case is "MODEL STAGE DTYPE [VARIANT]" with a model of models.py; the dtype autocast is fp32 with
torch_autocast in bf16. Variants: accumulated (two
micro-batches a step), clipped, offload_cpu and offload_nvme (the optimizer's state, at stage 3 also the
parameters), resume_1 and resume_4 (ten steps on two ranks, then ten on so many, which get the same
samples); of DeepSpeed alone torch_adam (PyTorch's AdamW in place of its own).
"""

import json
import pathlib

GOLDENS = pathlib.Path(__file__).parent / "goldens/deepspeed_losses.json"
MODELS = ["llama", "gpt2", "t5", "bert", "albert", "vit", "clip", "mixtral", "shared", "branches"]
STAGES = (0, 1, 2, 3)
STEPS = 20
STEPS_BEFORE_RESUME = 10
# DeepSpeed's kernels take 1 - beta in fp32, which for 0.999 is 5e-5 off: of these betas it is exact.
ADAMW = {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.875, 0.984375], "eps": 1e-8,
                                     "weight_decay": 0.01}}


def _list_cases():
    plain = [f"{model} {stage} fp32" for model in MODELS for stage in STAGES]
    # PyTorch's BatchNorm on the CPU takes no bf16 weights with fp32 buffers, which keep their dtype.
    plain += [f"{model} {stage} bf16" for model in MODELS if model != "branches" for stage in STAGES]
    plain += [f"llama {stage} autocast" for stage in (1, 2, 3)]
    varied = [f"{model} {stage} fp32 {variant}" for model in MODELS if model != "albert"
              for variant, stages in (("accumulated", STAGES), ("clipped", STAGES),
                                      ("offload_cpu", (1, 2, 3)), ("offload_nvme", (3,)))
              for stage in stages]
    # CLIP's loss and BatchNorm depend on how samples are divided among ranks: these do not.
    resumed = [f"{model} {stage} fp32 resume_{ranks}"
               for model in ("llama", "gpt2", "t5", "bert", "vit", "mixtral", "shared")
               for stage in STAGES for ranks in (1, 4)]
    return plain + varied + resumed


CASES = _list_cases()
# How far DeepSpeed's own Adam and PyTorch's are apart in bf16.
REFERENCES = [f"{model} 2 bf16 torch_adam" for model in MODELS if model != "branches"]
# Losses that are not those of PyTorch and of DeepSpeed's other stages: at stage 3, and with an offloaded optimizer, it
# gives a parameter without a gradient that of an earlier step; at stage 0 in bf16 it makes a step before the first.
UNFIT = {*(case for case in CASES if case.startswith("branches") and ("branches 3" in case or "offload" in case)),
         *(f"{model} 0 bf16" for model in MODELS)}
# For every run of the tests: each model sharded, and each variant once.
QUICK = [f"{model} 3 fp32" for model in MODELS] + [
    "llama 0 fp32", "t5 1 fp32", "shared 2 fp32", "llama 3 bf16", "t5 2 bf16", "llama 3 autocast",
    "shared 3 fp32 accumulated", "t5 2 fp32 clipped", "llama 3 fp32 offload_cpu",
    "t5 3 fp32 offload_nvme", "llama 3 fp32 resume_1", "gpt2 2 fp32 resume_4"]


def split(case):
    """Returns (model, stage, dtype, variant); the variant may be empty."""
    model, stage, dtype, *variant = case.split()
    return model, int(stage), dtype, variant[0] if variant else ""


def resumed_ranks(case):
    """The ranks of a case's second part; 0 for a case without one."""
    variant = split(case)[3]
    return int(variant.removeprefix("resume_")) if variant.startswith("resume_") else 0


def is_recorded(case):
    """Whether DeepSpeed has trained the case. It has resumed three models, within 1.2e-7 of their runs without a break:
    other resumed ones are compared with such runs."""
    model, stage, _, variant = split(case)
    if resumed_ranks(case) and (model not in ("llama", "gpt2", "t5") or stage == 0):
        return False
    return case not in UNFIT and variant != "offload_nvme"


def records_of(case, goldens):
    """DeepSpeed's records that a case is compared with: in fp32 one, else all of the model."""
    model, stage, dtype, variant = split(case)
    if dtype != "fp32":
        return [record for name, record in goldens.items() if split(name)[::2] == (model, dtype)]
    if case in UNFIT:
        stage = min(stage, 2)
        case = f"{model} {stage} fp32 {'' if 'offload' in variant else variant}".rstrip()
    # Where its state lies changes no value, and DeepSpeed's NVMe needs libaio.
    case = case.replace("offload_nvme", "offload_cpu")
    return [goldens[case if is_recorded(case) else f"{model} {stage} fp32"]]


def make_config(case, folder, ranks=2):
    """The ds_config of a case. NVMe files come to the folder."""
    _, stage, dtype, variant = split(case)
    zero = {"stage": stage}
    if stage == 3:
        zero["stage3_param_persistence_threshold"] = 0
    if variant.startswith("offload_"):
        tier = {"device": variant.removeprefix("offload_")}
        if tier["device"] == "nvme":
            tier["nvme_path"] = str(folder)
        zero["offload_optimizer"] = dict(tier)
        if stage == 3:
            zero["offload_param"] = dict(tier)
    optimizer = {"type": ADAMW["type"], "params": dict(ADAMW["params"])}
    if variant == "torch_adam":
        optimizer["params"]["torch_adam"] = True
    return {"train_micro_batch_size_per_gpu": 4 // ranks,
            "gradient_accumulation_steps": 2 if variant == "accumulated" else 1,
            "gradient_clipping": 0.5 if variant == "clipped" else 0.0,
            "bf16": {"enabled": dtype == "bf16"}, "optimizer": optimizer,
            "torch_autocast": {"enabled": dtype == "autocast", "dtype": "bfloat16"},
            "zero_optimization": zero}


def mean_over_ranks(folder, kind, ranks):
    """Reads what deepspeed_losses.py wrote: {case: {"losses", "norms"}}."""
    texts = [pathlib.Path(folder, f"{kind}{rank}.json").read_text() for rank in range(ranks)]
    results = [json.loads(text) for text in texts]
    return {case: {"losses": [sum(losses) / ranks for losses in
                              zip(*(result[case]["losses"] for result in results))],
                   "norms": first["norms"]} for case, first in results[0].items()}
