"""Names of DeepSpeed that scripts import and that raise an error when they are used."""

from __future__ import annotations

from typing import Any


def tp_model_init(model: Any, tp_size: int = 1, dtype: Any = None, config: Any = None,
                  **kwargs: Any) -> None:
    """Refuses: Python modules are not divided between ranks."""
    raise NotImplementedError("tp_model_init: Python modules are trained with data parallelism and "
                              "ZeRO; stage 3 divides their weights between the ranks")


class UlyssesSPAttentionHF:
    """Refuses: Python modules have no sequence parallelism."""

    @classmethod
    def register_with_transformers(cls, *args: Any, **kwargs: Any) -> None:
        """Raises NotImplementedError, which names the alternative."""
        raise NotImplementedError(
            "UlyssesSPAttentionHF: sequences of Python modules are not divided between ranks. C++ "
            "models have sequence parallelism: dsrun train --sp")


class UlyssesSPDataLoaderAdapter:
    """Refuses, as UlyssesSPAttentionHF."""

    def __init__(self, *args: Any, **kwargs: Any):
        UlyssesSPAttentionHF.register_with_transformers()
