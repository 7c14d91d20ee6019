"""The engine of a PipelineModule: a full step, or a full evaluation, at each call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from . import _native, checkpointing, comm
from .config import casts_inputs, section
from .dataloader import RepeatingLoader
from .engine import Engine
from .hooks import count_samples
from .optimizers import Groups
from .pipe import PipelineError, PipelineModule, PipelineParallelGrid
from .together import raise_together

_ALONE = "tensor"  # the name of an output that is no tuple
_FETCHED, _ENDED, _FAILED = range(3)  # outcomes of fetching a micro-batch, the worst last


def _name_tensors(outputs) -> dict[str, torch.Tensor]:
    """Returns the output of a stage as the engine sends it: tensors by name, in order."""
    if isinstance(outputs, torch.Tensor):
        return {_ALONE: outputs}
    if isinstance(outputs, (tuple, list)) and outputs and \
            all(isinstance(one, torch.Tensor) for one in outputs):
        return {f"{index:06d}": one for index, one in enumerate(outputs)}
    raise TypeError("the last layer of a stage returns a tensor or a tuple of tensors for the next "
                    f"stage, not {outputs!r:.200}")


def _take_received(received: dict[str, torch.Tensor]):
    """Returns the input of a stage. A layer may change it in place: its gradients are kept."""
    tensors = [one.clone() if one.requires_grad else one
               for _, one in sorted(received.items())]
    return tensors[0] if _ALONE in received else tuple(tensors)


def _copy_inputs(inputs, dtype: torch.dtype | None, needs_grad: bool):
    def copy(tensor):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError("a micro-batch is (inputs, labels), and inputs are a tensor or a tuple "
                            f"of tensors, not {tensor!r:.200}")
        if not tensor.is_floating_point():
            return tensor.clone()
        copied = tensor.detach().to(dtype or tensor.dtype, copy=True)
        return copied.requires_grad_(needs_grad)

    return tuple(map(copy, inputs)) if isinstance(inputs, (tuple, list)) else copy(inputs)


def _take_section(module: PipelineModule, config: dict) -> tuple[dict, int]:
    """Returns the section "pipeline" for the engine, and its interval of checkpoints; 0: the module's.

    The module has decided about its layers: raises ValueError if a key contradicts it.
    """
    given = section(config, "pipeline")
    of_module = {"stages": "auto", "partition": "best"}  # values that leave it to the module
    own = {"stages": ("num_stages", module.num_stages),
           "partition": ("partition_method", module.partition_method),
           "seed_layers": ("seed_layers", module.seed_layers)}
    for key, (argument, value) in own.items():
        wanted = given.get(key, value)
        if wanted not in (value, of_module.get(key, value)):
            raise ValueError(f"pipeline.{key} of the config is {wanted!r}, and the PipelineModule has "
                             f"{argument}={value!r}: remove the key, or give it to PipelineModule")
    interval = given.get("activation_checkpoint_interval", 0)
    if type(interval) is not int or interval < 0:
        raise ValueError(f"pipeline.activation_checkpoint_interval of the config is {interval!r}: it "
                         "is a number of layers, or 0")
    rest = {key: value for key, value in given.items()
            if key not in own and key != "activation_checkpoint_interval"}
    return {**rest, "stages": module.num_stages}, interval


class PipelineEngine(Engine):
    """Trains a PipelineModule by train_batch; forward, backward and step raise PipelineError.

    A step has gradient_accumulation_steps() micro-batches (inputs, labels). The first and the last
    stage read them from their iterators, which give the same ones, in the schedule 1F1B.
    """

    def __init__(self, module: PipelineModule, config: dict, groups: Groups | None,
                 lr_scheduler: Any = None):
        stage = section(config, "zero_optimization").get("stage", 0)
        if isinstance(stage, int) and stage > 1:
            raise ValueError("ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism")
        if section(config, "torch_autocast").get("enabled"):
            raise NotImplementedError("torch_autocast with a PipelineModule: use bf16 or fp16")
        own, interval = _take_section(module, config)
        super().__init__(module, {**config, "pipeline": own}, groups, lr_scheduler)
        if interval > 0:
            module.set_checkpoint_interval(interval)
        self.__dict__.update(
            data_iterator=None, training_dataloader=None, batch_fn=None, outputs=None,
            agg_train_loss=None, _batch=None, _first=None, _begun=0, _failed=False)

    @property
    def grid(self) -> PipelineParallelGrid:
        """This rank's place among stages and copies."""
        return self.module.mpu()

    mpu = grid

    @property
    def num_stages(self) -> int:
        """The number of stages."""
        return self.grid.pipe_parallel_size

    @property
    def stage_id(self) -> int:
        """The stage of this rank."""
        return self.grid.stage_id

    @property
    def dp_world_size(self) -> int:
        """The number of pipelines, which train on different samples."""
        return self.grid.data_parallel_size

    @property
    def micro_batch_size(self) -> int:
        """The samples of a micro-batch of one pipeline."""
        return self.train_micro_batch_size_per_gpu()

    @property
    def micro_batches(self) -> int:
        """The micro-batches of a step that each pipeline runs."""
        return self.gradient_accumulation_steps()

    def is_first_stage(self) -> bool:
        """Returns whether this rank's stage reads the inputs."""
        return self.stage_id == 0

    def is_last_stage(self) -> bool:
        """Returns whether this rank's stage computes the loss."""
        return self.stage_id == self.num_stages - 1

    def get_pipeline_parallel_rank(self) -> int:
        """Returns the stage of this rank, from 0."""
        return self.stage_id

    def forward(self, *args: Any, **kwargs: Any) -> None:
        """Raises PipelineError: train_batch and eval_batch run the layers."""
        raise PipelineError("Only train_batch() is accessible in pipeline mode.")

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Raises PipelineError: train_batch has the backward passes."""
        raise PipelineError("Only train_batch() is accessible in pipeline mode.")

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Raises PipelineError: train_batch updates."""
        raise PipelineError("Only train_batch() is accessible in pipeline mode.")

    def set_dataloader(self, loader: Iterable) -> None:
        """Reads the micro-batches of later train_batch calls from the loader."""
        if self.is_first_stage() or self.is_last_stage():
            self.training_dataloader = loader
            self.data_iterator = iter(loader)

    def set_dataiterator(self, iterator: Iterator | None) -> None:
        """Reads the micro-batches of later train_batch calls from the iterator."""
        if self.is_first_stage() or self.is_last_stage():
            self.training_dataloader = None
            self.data_iterator = iterator

    def set_batch_fn(self, fn: Callable) -> None:
        """Makes (inputs, labels) of what iterators give."""
        self.batch_fn = fn

    def make_loader(self, training_data: Any, collate_fn: Callable | None = None) -> RepeatingLoader:
        """Returns an endless loader of this rank's micro-batches, which train_batch then reads."""
        loader = RepeatingLoader(self._make_loader(
            training_data, collate_fn, self.grid.data_parallel_id, shuffle=False))
        self.set_dataloader(loader)
        return loader

    def reset_activation_shape(self) -> None:
        """Does nothing: stages describe the tensors that they send."""

    def get_additional_losses(self) -> None:
        """Returns None: modules with further losses are refused."""
        return None

    def train_batch(self, data_iter: Iterator | None = None) -> torch.Tensor:
        """Trains one step and returns the mean loss of its micro-batches, on every rank.

        Takes gradient_accumulation_steps() micro-batches of `data_iter`, or of the training data
        given to `initialize`.
        """
        if not torch.is_grad_enabled():
            raise RuntimeError("train_batch() requires gradients enabled. Use eval_batch() "
                               "instead.")
        self._check_trains("train_batch")
        if data_iter is not None:
            self.set_dataiterator(data_iter)
        self.module.train()
        result = self._run_step(
            lambda: self.native.train_batch(self._read_batch, self._train_stage))
        self._take_result(result)
        self.agg_train_loss = torch.tensor(result.loss)
        return self.agg_train_loss

    def _run_step(self, run: Callable, trains: bool = True):
        """Returns run(), unless an earlier step has ended in its middle: it is half done.

        An evaluation changes no state, but on several stages its messages are pending: other stages,
        which may wait for them, get the error, and so does all that the ranks do together from then
        on.
        """
        if self._failed:
            raise RuntimeError("an exception has ended an earlier step within its micro-batches: "
                               "start the ranks again, and load a checkpoint")
        self._begun = 0
        self._first = self._fetch_first(trains)
        try:
            return run()
        except BaseException as error:
            self._failed = self._begun > 0 and (trains or self.num_stages > 1)
            if self._failed and self.num_stages > 1:
                _native.abort("an exception has ended its pipeline step within the micro-batches: "
                              f"{type(error).__name__}: {error}")
            raise

    def _read_batch(self) -> int:
        """Reads a micro-batch and returns its number of samples."""
        first, self._first = self._first, None
        self._batch = self._fetch() if self._begun > 0 else first
        self._begun += 1
        return self.micro_batch_size if self._batch is None else count_samples(self._batch[0])

    def _fetch(self):
        """Returns the next micro-batch, as the iterator has it; None on a stage between others."""
        if not (self.is_first_stage() or self.is_last_stage()):
            return None
        if self.data_iterator is None:
            raise RuntimeError("there are no data: give train_batch() an iterator, or initialize() "
                               "training_data")
        batch = next(self.data_iterator)
        return batch if self.batch_fn is None else self.batch_fn(batch)

    def _fetch_first(self, trains: bool):
        """_fetch, and the checks of a step, before any rank waits for another one. Collective.

        If data have ended on a rank, all raise StopIteration; with an exception of one, all raise.
        """
        batch = failure = None
        try:
            if trains:
                self.passes.owned.check()
                self.optimizer.push_rate()
            batch = self._fetch()
        except Exception as error:
            failure = error
        outcome = _FETCHED if failure is None else (
            _ENDED if isinstance(failure, StopIteration) else _FAILED)
        worst = _native.find_largest(outcome, [])
        if worst == _ENDED:
            raise StopIteration
        if worst == _FAILED:
            raise_together(failure)
        return batch

    def _run_layers(self, received: dict[str, torch.Tensor]):
        if not self.is_first_stage():
            return self._run_module(_take_received(received))
        dtype = torch.float16 if casts_inputs(self.config) else None
        # Functions of the script may be PyTorch's reentrant one, which needs inputs with gradients.
        needs_grad = (self.module.activation_checkpoint_interval > 0 and torch.is_grad_enabled()
                      and self.module.activation_checkpoint_func is not checkpointing.checkpoint)
        return self._run_module(_copy_inputs(self._batch[0], dtype, needs_grad))

    def _run_module(self, inputs):
        with self._autocast():  # none: a script's own has no effect
            return self.module(inputs)

    def _find_loss(self, outputs):
        labels = self._batch[1]
        if isinstance(labels, list):
            labels = tuple(labels)
        if self.module.get_additional_losses() is not None:
            raise NotImplementedError("get_additional_losses(): the engine reports one loss")
        return outputs if self.module.loss_fn is None else self.module.loss_fn(outputs, labels)

    def _train_stage(self, received: dict[str, torch.Tensor]):
        outputs = self._run_layers(received)
        if not self.is_last_stage():
            return _name_tensors(outputs), None
        loss = self._find_loss(outputs)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise ValueError("the loss is no scalar: the last layer has to return it, if there is "
                             "no loss_fn")
        return {}, loss

    def eval_batch(self, data_iter: Iterator, return_logits: bool = False, compute_loss: bool = True,
                   reduce_output: str | None = "avg", bcast_loss: bool = True,
                   num_micro_batches: int | None = None) -> Any:
        """Evaluates micro-batches and returns the mean of their losses.

        Every rank gets it, but with bcast_loss=False those of the last stage only. Without a loss
        (compute_loss=False) the last stage gets the mean of the outputs, and the others None. With
        reduce_output=None the last stage gets the list of losses or outputs in place of their mean.
        With return_logits the result is (it, the outputs of the last micro-batch).
        """
        if reduce_output not in (None, "avg"):
            raise NotImplementedError(f"reduction type {reduce_output} not supported.")
        self.module.eval()
        results: list = []

        def run(received):
            outputs = self._run_layers(received)
            if not self.is_last_stage():
                return _name_tensors(outputs), None
            if return_logits:
                self.outputs = outputs
            results.append(self._find_loss(outputs) if compute_loss else outputs)
            if compute_loss and bcast_loss and not _is_scalar(results[-1]):
                raise ValueError("the loss is no scalar: eval_batch(compute_loss=False) returns the "
                                 "outputs")
            return {}, results[-1] if _is_scalar(results[-1]) else torch.zeros(())

        training = self.training_dataloader, self.data_iterator
        self.set_dataiterator(data_iter)
        try:
            with torch.no_grad():
                mean = self._run_step(lambda: self.native.evaluate_batch(
                    self._read_batch, run, num_micro_batches or self.micro_batches), trains=False)
        finally:
            self.training_dataloader, self.data_iterator = training
        output = torch.tensor(mean) if compute_loss and bcast_loss else None
        if self.is_last_stage():
            if reduce_output is None:
                output = results
            else:
                are_scalars = all(map(_is_scalar, results))
                output = torch.tensor(mean) if are_scalars else self._average(results)
        logits, self.outputs = self.outputs, None
        return (output, logits) if return_logits else output

    def _average(self, results: list):
        """Returns the mean over micro-batches and the ranks of this stage. These ranks all call it."""
        if not isinstance(results[0], torch.Tensor):
            return [self._average(list(one)) for one in zip(*results)]
        mean = torch.stack([one.detach() for one in results]).sum(0) / len(results)
        if self.dp_world_size > 1:
            mean = mean.to(comm.get_device()).contiguous()
            _native.all_reduce(mean, self.grid.dp_group)
            mean /= self.dp_world_size
        return mean

    def _modules_with_extra_state(self) -> dict:
        modules = super()._modules_with_extra_state()
        if modules and self.num_stages > 1:
            raise NotImplementedError(f"{', '.join(modules)}: the extra state (get_extra_state) of layers "
                                      "is not saved in a pipeline of several stages")
        return modules

    def _names_of_state(self) -> dict[str, str] | None:
        """Those of all stages."""
        texts = _native.gather_texts(json.dumps(self._own_names_of_state()))
        if comm.get_rank() != 0:
            return None
        return {name: own for text in texts for name, own in json.loads(text).items()}


def _is_scalar(value) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1
