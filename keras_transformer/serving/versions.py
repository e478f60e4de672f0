"""The newest version in a folder, and the change to a newer one.

As TensorFlow Serving does by default: the highest number is served; a newer
one is loaded beside it, then takes over, and the older one finishes what it
took before its memory is freed.
"""

import asyncio
import contextlib
import logging
import pathlib
from collections.abc import Iterator

from keras_transformer.config import UserError
from keras_transformer.serving.served_model import (
    DEFAULT_SIGNATURE,
    ServedModel,
)

LOADING, AVAILABLE, UNLOADING, END = "LOADING", "AVAILABLE", "UNLOADING", "END"
POLL_SECONDS = 2.0
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


class UnknownVersionError(LookupError):
    """A client asks for a version that is not served."""


class Versions:
    """What is served of a folder.

    Args:
        folder: Folder of all versions.

    Attributes:
        states: What became of each version that was taken up, by its number:
            its state and, where it could not be loaded, why.

    Raises:
        UserError: If there is no version, or the newest cannot be loaded.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        found = find_versions(folder)
        if not found:
            raise UserError(
                f"Expected an export in {folder}, with folders such as 1 that "
                "hold a saved_model.pb; found none. Write one with "
                "keras-transformer export."
            )
        self.states: dict[int, tuple[str, str]] = {}
        self._users: dict[ServedModel, int] = {}
        # Those that failed are tried again once they change.
        self._failed: dict[int, float] = {}
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
            except UserError as error:
                logger.warning("%s", error)

    async def change_over(self) -> None:
        """Serve the highest version there is, if it is another one.

        Raises:
            UserError: If it cannot be loaded; the current one stays.
        """
        found = await asyncio.to_thread(find_versions, self.folder)
        if not found or max(found) == self._current.version:
            return
        path = found[max(found)]
        version, changed = max(found), path.stat().st_mtime
        if self._failed.get(version) == changed:
            return
        self.states[version] = LOADING, ""
        try:
            model = await asyncio.to_thread(self._load, path)
        except UserError as error:
            self._failed[version] = changed
            self.states[version] = END, str(error)
            raise
        old, self._current = self._current, model
        self.states[old.version] = UNLOADING, ""
        logger.info("Version %d takes over from %d", version, old.version)
        self._users.setdefault(old, 0)
        self._close_unused()

    def _load(self, path: pathlib.Path) -> ServedModel:
        model = ServedModel(path)
        # The first call of a signature is slow. That of the others comes soon
        # enough: a version shall not be late for one that nobody asks for.
        inputs = model.signatures.get(DEFAULT_SIGNATURE)
        if inputs is not None:
            row = (_WARM_UP_TEXT,) * len(inputs.inputs)
            model.run(DEFAULT_SIGNATURE, [row])
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
