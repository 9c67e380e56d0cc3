"""Where workers write checkpoints that need not come back: a folder that all nodes see, or a file system by its URI."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self
from uuid import uuid4

from pyarrow import ArrowException, fs

from hotswap.errors import SettingError

__all__ = ["Storage", "checkpoint_name"]

PATIENCE = 20.0  # seconds for a storage to answer at all
_NAME = re.compile(r"epoch-(\d+)-([0-9a-f]{64})\.safetensors")


def checkpoint_name(folder: str, epoch: int, data: bytes) -> str:
    """What a checkpoint is called: two that differ have different names, so that no writer replaces another's."""
    return f"{folder}/epoch-{epoch:06d}-{hashlib.sha256(data).hexdigest()}.safetensors"


class Storage:
    """Files by name, whole or not there.

    Args:
        uri: What pyarrow makes a file system of: `s3://bucket/folder`, `gs://...`, `hdfs://...`, `file:///folder`.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._files, self._root = fs.FileSystem.from_uri(uri)

    @classmethod
    def named(cls, text: str) -> Self:
        """The storage that a person names, after a file was written to it, read and deleted.

        Raises:
            SettingError: It cannot be used, or does not answer.
        """
        uri = text if "://" in text else Path(text).expanduser().resolve().as_uri()
        try:
            _within(PATIENCE, lambda: cls(uri).tried())
        except (OSError, ArrowException, TimeoutError) as error:
            raise SettingError(
                f"--storage {text} cannot be written to ({_in_a_line(error)}); name a folder that all nodes see, or a "
                "URI such as s3://bucket/folder that they may write to."
            ) from error
        return cls(uri)

    def tried(self) -> None:
        """Write a file, read it and delete it."""
        name = f".tried-{uuid4().hex}"
        self.write(name, b"hotswap")
        if self.read(name) != b"hotswap":
            raise OSError("it gives back something else than was written to it")
        self.delete(name)

    def write(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all."""
        path = self._path(name)
        local = self._files.type_name == "local"  # elsewhere, a file appears when it is closed
        part = f"{path}.{uuid4().hex}" if local else path
        if local:
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(part) as stream:
            stream.write(data)
        if local:
            self._files.move(part, path)

    def read(self, name: str) -> bytes:
        """What a file holds.

        Raises:
            ValueError: It is a checkpoint whose checksum does not match.
        """
        with self._files.open_input_stream(self._path(name)) as stream:
            data: bytes = stream.read()
        matched = _NAME.fullmatch(name.rpartition("/")[2])
        if matched and hashlib.sha256(data).hexdigest() != matched[2]:
            raise ValueError("it is damaged: its checksum does not match")
        return data

    def delete(self, name: str) -> None:
        """Delete a file that is there."""
        self._files.delete_file(self._path(name))

    def forget(self, folder: str, *, kept: set[str]) -> None:
        """Delete a folder's checkpoints that are no later than those to be kept, whoever wrote them."""
        last = max(int(matched[1]) for name in kept if (matched := _NAME.fullmatch(name.rpartition("/")[2])))
        for info in self._files.get_file_info(fs.FileSelector(self._path(folder), allow_not_found=True)):
            matched = _NAME.fullmatch(info.base_name)
            if matched and int(matched[1]) <= last and f"{folder}/{info.base_name}" not in kept:
                self._files.delete_file(info.path)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def _within(seconds: float, function: Callable[[], object]) -> None:
    """Call a function that must return in time: file systems beyond a network can be patient for minutes."""
    errors: list[Exception] = []

    def call() -> None:
        try:
            function()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if thread.is_alive():
        raise TimeoutError(f"no answer within {seconds:.0f} s")


def _in_a_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
