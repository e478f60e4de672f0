"""The newest version in a folder, and the change to a newer one.

As TensorFlow Serving does by default: the highest number is served; a newer
one is loaded beside it, then takes over, and the older one finishes what it
took before its memory is freed.
"""

import asyncio
import contextlib
import logging
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from keras_transformer.config import UserError
from keras_transformer.serving.served_model import (
    DEFAULT_SIGNATURE,
    ServedModel,
)

LOADING, AVAILABLE, UNLOADING, END = "LOADING", "AVAILABLE", "UNLOADING", "END"
POLL_SECONDS = 2.0
# After which one that could not be loaded is tried again as it is: memory may
# have been short.
RETRY_SECONDS = 60.0
# The language does not matter.
_WARM_UP_TEXT = b"Where is the nearest station?"

logger = logging.getLogger("keras_transformer")


def find_versions(folder: pathlib.Path) -> dict[int, pathlib.Path]:
    """The SavedModels in a folder by version, which is their folder's name."""
    return {
        int(path.parent.name): path.parent
        for path in folder.glob("*/saved_model.pb")
        if path.parent.name.isdecimal() and path.parent.name.isascii()
    }


def _content(path: pathlib.Path) -> tuple[tuple[str, int, int], ...]:
    """Note what changes while files are still copied into a version."""
    found = []
    for file in sorted(path.rglob("*")):
        stat = file.stat()
        found.append((str(file), stat.st_size, stat.st_mtime_ns))
    return tuple(found)


class UnknownVersionError(LookupError):
    """A client asks for a version that is not served."""


class Versions:
    """What is served of a folder.

    Args:
        folder: Folder of all versions.
        threads: As for `ServedModel`.

    Attributes:
        states: What became of each version that was taken up, by its number:
            its state and, where it could not be loaded, why.

    Raises:
        UserError: If there is no version, or the newest cannot be loaded.
    """

    def __init__(self, folder: pathlib.Path, threads: int = 0) -> None:
        self.folder, self.threads = folder, threads
        found = find_versions(folder)
        if not found:
            raise UserError(
                f"Expected an export in {folder}, with folders such as 1 that "
                "hold a saved_model.pb; found none. Write one with "
                "keras-transformer export."
            )
        self.states: dict[int, tuple[str, str]] = {}
        self._users: dict[ServedModel, int] = {}
        # What those that failed held, and when that was.
        self._failed: dict[int, tuple[Any, float]] = {}
        self._content = _content(found[max(found)])
        self._current = self._load(found[max(found)])

    @property
    def current(self) -> ServedModel:
        """The version that answers who names none."""
        return self._current

    @contextlib.contextmanager
    def use(self, version: int | None = None) -> Iterator[ServedModel]:
        """Lend a version; it stays until it is given back.

        Args:
            version: Its number; None for the current one.

        Raises:
            UnknownVersionError: If it is not served.
        """
        model = self._current
        if version not in (None, model.version):
            raise UnknownVersionError(version)
        self._users[model] = self._users.get(model, 0) + 1
        try:
            yield model
        finally:
            self._users[model] -= 1
            self._close_unused()

    async def follow(self) -> None:
        """Look for a newer version now and then, for ever."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.change_over()
            except (UserError, OSError) as error:
                logger.warning("%s", error)
            except Exception:  # A folder may hold anything; others come.
                logger.exception("Could not look for a newer version")

    async def change_over(self) -> None:
        """Serve the highest version there is, if it is another one.

        Raises:
            UserError: If it cannot be loaded; the current one stays.
            OSError: If the folder cannot be read.
        """
        found = await asyncio.to_thread(find_versions, self.folder)
        if not found:
            return
        version, path = max(found), found[max(found)]
        content = await asyncio.to_thread(_content, path)
        if version == self._current.version:
            if content != self._content:
                logger.warning(
                    "Version %d has changed on disk and is served as it was; "
                    "give what changed a new number.",
                    version,
                )
                self._content = content
            return
        failed, when = self._failed.get(version, (None, 0.0))
        if failed == content and time.monotonic() - when < RETRY_SECONDS:
            return
        self.states[version] = LOADING, ""
        try:
            model = await asyncio.to_thread(self._load, path)
        except UserError as error:
            self._failed[version] = content, time.monotonic()
            # Clients see it: the log alone names the folder.
            reason = str(error).replace(f"{self.folder}{os.sep}", "")
            self.states[version] = END, reason
            raise
        old, self._current = self._current, model
        self._content = content
        self.states[old.version] = UNLOADING, ""
        logger.info("Version %d takes over from %d", version, old.version)
        self._users.setdefault(old, 0)
        self._close_unused()

    def _load(self, path: pathlib.Path) -> ServedModel:
        try:
            model = ServedModel(path, self.threads)
        except UserError:
            raise
        except Exception as error:  # Whatever else a folder may hold.
            raise UserError(
                f"Expected a SavedModel in {path}, cannot load it "
                f"({type(error).__name__}); export the model again."
            ) from error
        # The first call of a signature is slow. That of the others comes soon
        # enough: a version shall not be late for one that nobody asks for.
        inputs = model.signatures.get(DEFAULT_SIGNATURE)
        if inputs is not None:
            row = (_WARM_UP_TEXT,) * len(inputs.inputs)
            try:
                model.run(DEFAULT_SIGNATURE, [row])
            except Exception as error:  # Such as a part that is missing.
                model.close()
                reason = " ".join(str(error).split())[:200]
                raise UserError(
                    f"Expected a SavedModel that answers in {path}, its first "
                    f"answer failed ({reason}); export the model again."
                ) from None
        self.states[model.version] = AVAILABLE, ""
        return model

    def _close_unused(self) -> None:
        """Free the versions that nobody uses any more."""
        for model, users in list(self._users.items()):
            if model is not self._current and not users:
                del self._users[model]
                self.states[model.version] = END, ""
                # It may take a moment, which others need not wait for.
                asyncio.get_running_loop().run_in_executor(None, model.close)
