"""A sampler that goes on with what is left when the ranks change in the middle of an epoch."""

from __future__ import annotations

import math
import random
from typing import Any, Dict, Iterator, List, Set

import torch

from ..._core._context import rank, size


class ElasticSampler(torch.utils.data.Sampler):  # type: ignore[type-arg]
    """Each rank gets its share of the indices that have not been processed in this epoch; all shares have
    the same length, so a few indices may be there twice.

    After each batch record_batch() says that it has been processed, and after each epoch set_epoch()
    begins the next. As a part of a TorchState it is the same on all ranks after a reset.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices: Set[int] = set()
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: nothing has been processed in it."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """This rank has processed its batch_idx-th batch since the last reset."""
        self.processed_indices.update(self.indices[batch_idx * batch_size:(batch_idx + 1) * batch_size])

    def state_dict(self) -> Dict[str, Any]:
        """The epoch, and what has been processed in it."""
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Takes over what state_dict() gave."""
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def reset(self) -> None:
        """Shares out anew what is left, among the ranks that there are now."""
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
