"""Splitting a cross-score matrix over the processes of torch.distributed. One process: everything here is the identity."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
import torch.distributed as dist


class Processes:
    """The processes that score one matrix together."""

    def __init__(self) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)

    def require_same(self, arguments: Any) -> None:
        """Raise ValueError on every rank when the ranks were called with different arguments."""
        if self.world == 1:
            return
        digest = hashlib.blake2b(repr(arguments).encode(), digest_size=16).hexdigest()
        digests: list[Any] = [None] * self.world
        dist.all_gather_object(digests, digest)
        if len(set(digests)) > 1:
            raise ValueError("every process must score the same prompts, reasonings and pairs; gather them first")

    def share(self, wanted_UP: np.ndarray, *, order: list[int]) -> np.ndarray:
        """This rank's part of the wanted pairs: neighbouring columns of `order` (they share prefixes), else some of the rows."""
        mine = np.zeros_like(wanted_UP)
        if wanted_UP.shape[1] >= self.world:
            bounds = np.linspace(0, len(order), self.world + 1).round().astype(int)
            columns = order[bounds[self.rank] : bounds[self.rank + 1]]
            mine[:, columns] = wanted_UP[:, columns]
        else:
            mine[self.rank :: self.world] = wanted_UP[self.rank :: self.world]
        return mine

    def sum(self, values: np.ndarray, device: torch.device) -> np.ndarray:
        """Sum of an array over all ranks, on every rank."""
        if self.world == 1:
            return values
        on_gpu = dist.get_backend() == "nccl"
        tensor = torch.from_numpy(values).to(device if on_gpu else "cpu")
        dist.all_reduce(tensor)
        return tensor.cpu().numpy()
