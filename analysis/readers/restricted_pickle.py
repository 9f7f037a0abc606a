"""Pickles read as data: an unpickler that knows a handful of harmless classes and refuses every other one.

Serves torch zip files (slime) without torch, verl's pickled DataProto, and SkyRL's pickled training batches. Nothing named in a
pickle is ever imported or called except the constructors listed here.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from analysis.readers.containers import open_binary, open_seekable, read_member

_DTYPES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "bfloat16", "LongStorage": "<i8",
    "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1", "BoolStorage": "?",
}  # fmt: skip


class PickleRefused(Exception):
    """The pickle is damaged or names a class that is not on the list."""


class _StorageType:
    def __init__(self, name: str) -> None:
        self.dtype = _DTYPES.get(name)


class _DataProtoState:
    """Stands for verl.protocol.DataProto: keeps the state, runs nothing."""

    state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state


class _TensorBatch(dict):  # type: ignore[type-arg]
    """Stands for SkyRL's TrainingInputBatch, a dictionary of tensors; its attributes are not kept."""

    def __setstate__(self, state: Any) -> None:
        pass


def _device(*names: Any) -> str:
    return ":".join(map(str, names))


def _rebuild_tensor(
    storage: np.ndarray, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> np.ndarray:
    needed = offset + 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else offset
    if offset < 0 or any(s < 0 for s in stride) or needed > len(storage):
        raise PickleRefused("a tensor reaches outside its storage")
    strides = tuple(s * storage.itemsize for s in stride)
    return np.lib.stride_tricks.as_strided(storage[offset:], size, strides).copy()


def _storage_from_bytes(data: bytes) -> np.ndarray:
    """A tensor storage inside an ordinary pickle: torch's file format from before its zip files, with one storage in it."""
    stream = io.BytesIO(data)
    for _ in range(3):  # magic number, protocol, system
        _Restricted(stream).load()
    dtypes: list[str | None] = []

    def note(kind: _StorageType, key: str) -> None:
        dtypes.append(kind.dtype)

    _Restricted(stream, note).load()
    _Restricted(stream).load()  # keys of the storages
    (n_items,) = struct.unpack("<q", stream.read(8))
    if len(dtypes) != 1 or dtypes[0] is None or n_items < 0:
        raise PickleRefused("a tensor storage of an unknown kind")
    return _numbers(stream.read(), dtypes[0])[:n_items]


def _numbers(raw: bytes, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(raw, dtype)


_BATCH_CLASSES = [
    (module, name)
    for module in ("skyrl.backends.skyrl_train.training_batch", "skyrl_train.training_batch")
    for name in ("TrainingInputBatch", "TensorBatch")
]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch.storage", "_load_from_bytes"): _storage_from_bytes,
    ("torch", "device"): _device,
    ("verl.protocol", "DataProto"): _DataProtoState,
    **dict.fromkeys(_BATCH_CLASSES, _TensorBatch),
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    # numpy 1 and 2 name the same functions differently.
    ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
    ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
    ("numpy.core.multiarray", "scalar"): np._core.multiarray.scalar,  # type: ignore[attr-defined]
    ("numpy._core.multiarray", "scalar"): np._core.multiarray.scalar,  # type: ignore[attr-defined]
}


class _Restricted(pickle.Unpickler):
    def __init__(self, stream: BinaryIO, storages: Any = None) -> None:
        super().__init__(stream)
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _DTYPES:
            return _StorageType(name)
        try:
            return _ALLOWED[(module, name)]
        except KeyError:
            raise PickleRefused(f"it names {module}.{name}, which is not loaded from a log") from None

    def persistent_load(self, pid: Any) -> np.ndarray:
        if self._storages is None or not (isinstance(pid, tuple) and pid[0] == "storage"):
            raise PickleRefused("it refers to an object outside the file")
        return self._storages(pid[1], str(pid[2]))


def _load(stream: BinaryIO, storages: Any = None) -> Any:
    try:
        return _Restricted(stream, storages).load()
    except PickleRefused:
        raise
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
    ) as error:
        raise PickleRefused(f"damaged pickle ({error})") from error


def load_torch_zip(path: Path) -> Any:
    """Content of a file written by torch.save (zip format); tensors come back as numpy arrays. Raises PickleRefused."""
    try:
        with open_seekable(path) as handle, zipfile.ZipFile(handle) as archive:
            infos = {info.filename: info for info in archive.infolist()}
            pickled = next((name for name in infos if name.endswith("/data.pkl")), None)
            if pickled is None:
                raise PickleRefused("no data.pkl in it")
            folder = pickled.removesuffix("data.pkl")

            def storage(kind: _StorageType, key: str) -> np.ndarray:
                raw = read_member(archive, infos[f"{folder}data/{key}"])
                return _numbers(raw, str(kind.dtype))

            return _load(io.BytesIO(read_member(archive, infos[pickled])), storage)
    except zipfile.BadZipFile as error:
        raise PickleRefused(f"not a complete zip file ({error})") from error


def load_data_proto(path: Path) -> dict[str, Any]:
    """Non-tensor part of a pickled verl DataProto. Raises PickleRefused."""
    with open_binary(path) as handle:
        proto = _load(handle)
    if not isinstance(proto, _DataProtoState) or len(proto.state) < 2 or not isinstance(proto.state[1], dict):
        raise PickleRefused("no DataProto with a non-tensor part")
    return proto.state[1]


def load_tensor_batch(path: Path) -> dict[str, np.ndarray | None]:
    """Tensors of a pickled SkyRL training batch, as arrays. Raises PickleRefused."""
    with open_binary(path) as handle:
        batch = _load(handle)
    if not isinstance(batch, _TensorBatch):
        raise PickleRefused("no SkyRL training batch")
    return {str(name): value for name, value in batch.items() if value is None or isinstance(value, np.ndarray)}
