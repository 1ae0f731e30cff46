"""Pictures of an environment, one after another, as a GIF or an MP4.

    with Video("cartpole.gif", fps=50) as video:
        video.add(env.render())          # height × width × 3 bytes, render_mode="rgb_array"

The file takes its name once it is complete. Pillow writes the GIF, FFmpeg (of imageio-ffmpeg) the MP4;
both come with `pip install 'gpsarsa[video]'`.
"""

from __future__ import annotations

import importlib
import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpsarsa import _validation as check
from gpsarsa.runs import RunError

__all__ = ["FPS", "Video"]

FPS = 30.0  # where an environment does not say
SHORTEST = 20  # milliseconds a picture of a GIF stays: browsers slow down what is faster
LONGEST = 600_000  # what a GIF can hold

Frame = NDArray[np.uint8]


class Video:
    """A video file that is being written.

    Parameters
    ----------
    path : path
        Ends in .gif or .mp4.
    fps : float
        Pictures a second.
    """

    def __init__(self, path: str | os.PathLike[str], fps: float) -> None:
        self.path, self.frames = check.path(path, "path"), 0
        suffix = self.path.suffix.lower()
        if suffix not in (".gif", ".mp4"):
            raise RunError(f"{self.path} ends in {suffix!r}; a video ends in .gif or .mp4")
        rate = check.positive(fps, "fps")
        self._temporary = self.path.with_name(f".{self.path.stem}.{secrets.token_hex(4)}{suffix}")
        self._writer: _Gif | _Mp4 = (_Gif if suffix == ".gif" else _Mp4)(self._temporary, rate)
        try:
            self._temporary.touch()  # fails now rather than when all is played
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def add(self, frame: Any) -> None:
        """The next picture."""
        picture = np.asarray(frame)
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            what = "nothing" if frame is None else f"{picture.dtype} of shape {picture.shape}"
            raise RunError(f"the environment's picture is {what}; expected uint8 of shape (height, width, 3)")
        self._writer.add(picture)
        self.frames += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._writer.close(wanted=kind is None and self.frames > 0)
            if kind is None and self.frames > 0:
                os.replace(self._temporary, self.path)
        finally:
            self._temporary.unlink(missing_ok=True)


class _Gif:
    """Pictures are kept with 256 colours each and written at the end."""

    def __init__(self, path: Path, fps: float) -> None:
        self._image, self._path = _needed("PIL.Image", path), path
        self._duration = max(SHORTEST, round(min(1000 / fps, LONGEST)))
        self._pictures: list[Any] = []

    def add(self, frame: Frame) -> None:
        self._pictures.append(self._image.fromarray(frame).quantize(256, dither=0))

    def close(self, wanted: bool) -> None:
        if not wanted:
            return
        first, *others = self._pictures
        first.save(
            self._path, format="GIF", save_all=True, append_images=others, duration=self._duration, loop=0
        )


class _Mp4:
    """Pictures go to FFmpeg as they come."""

    def __init__(self, path: Path, fps: float) -> None:
        self._ffmpeg, self._path, self._fps = _needed("imageio_ffmpeg", path), path, fps
        self._pipe: Any = None

    def add(self, frame: Frame) -> None:
        if self._pipe is None:
            height, width, _ = frame.shape
            self._pipe = self._ffmpeg.write_frames(
                str(self._path), (width, height), fps=self._fps, macro_block_size=2, ffmpeg_log_level="error"
            )
            self._pipe.send(None)
        self._pipe.send(np.ascontiguousarray(frame))

    def close(self, wanted: bool) -> None:
        if self._pipe is not None:
            self._pipe.close()


def _needed(module: str, path: Path) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RunError(f"{path.suffix} files need {error.name}: pip install 'gpsarsa[video]'") from error
