"""Implements a sampler that goes on with the rest when the ranks change in the middle of an epoch."""

from __future__ import annotations

import math
import random
from typing import Any, Dict, Iterator, List, Set

import torch

from ..._core._context import rank, size


class ElasticSampler(torch.utils.data.Sampler):  # type: ignore[type-arg]
    """Gives each rank its share of the indices that have not been processed in this epoch. All shares have the same length, so a
    few indices may occur twice.

    After each batch record_batch() says that it has been processed, and after each epoch set_epoch() begins the next. As a part
    of a TorchState the sampler is the same on all ranks after a reset."""

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices: Set[int] = set()
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, in which nothing has been processed."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that this rank has processed its batch_idx-th batch since the last reset."""
        self.processed_indices.update(self.indices[batch_idx * batch_size:(batch_idx + 1) * batch_size])

    def state_dict(self) -> Dict[str, Any]:
        """Returns the epoch, and the indices that have been processed in it."""
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Takes over what state_dict() returned."""
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def reset(self) -> None:
        """Shares out the remaining indices anew, among the ranks that there are now."""
        self.num_replicas = size()
        self.rank = rank()
        self.remaining_indices = [i for i in range(len(self.dataset)) if i not in self.processed_indices]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.indices: List[int] = self._own_indices()

    def _own_indices(self) -> List[int]:
        order = list(self.remaining_indices)
        if self.shuffle:
            random.Random(f"{self.seed} {self.epoch}").shuffle(order)
        while order and len(order) < self.total_size:
            order += order[:self.total_size - len(order)]
        return order[self.rank:self.total_size:self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        self.indices = self._own_indices()
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
