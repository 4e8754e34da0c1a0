"""The stand-in's builder configuration: flags, profiles, timing cache."""

# ruff: noqa: D101, D102  (NVIDIA documents these classes and calls)

from __future__ import annotations

from typing import Any, SupportsInt

from course_lib.standin import gpu
from course_lib.standin.conforming import Template, kept
from course_lib.standin.trt.values import report

_TIMING_MAGIC = b"TIMINGS:"


class IOptimizationProfile(Template):
    def _setup(self, logger: Any) -> None:
        self._logger = logger
        self._ranges: dict[str, list[list[int]]] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        for which, shape in (("min", min), ("opt", opt), ("max", max)):
            if any(size < 0 for size in shape):
                self._complain("setDimensions: Error Code 3: API Usage Error (Parameter check failed, condition: x >= 0)")
                raise RuntimeError(f"Shape provided for {which} is inconsistent with other shapes.")
        self._ranges[input] = [list(min), list(opt), list(max)]

    def get_shape(self, input: str) -> list[Any]:
        if input not in self._ranges:
            self._complain(f"getDimensions: Error Code 4: API Usage Error (Cannot get dimensions for input: {input}.)")
            return []
        return [self._trt.Dims(shape) for shape in self._ranges[input]]

    def __bool__(self) -> bool:
        for name, (low, best, high) in self._ranges.items():
            ordered = len(low) == len(best) == len(high) and all(a <= b <= c for a, b, c in zip(low, best, high, strict=True))
            if not ordered:
                text = f"Invalid optimization profiles for input tensors {name}, please ensure that they satisfy MIN<=OPT<=MAX."
                self._complain(f"isValid: Error Code 4: API Usage Error ({text})")
                return False
        return True

    def _complain(self, text: str) -> None:
        report(self._logger, "ERROR", f"IOptimizationProfile::{text}")


class ITimingCache(Template):
    """Remembers which networks were built, for the builder's log; it has the magic word, the version and the device in it."""

    def _setup(self, stamp: bytes, entries: set[bytes]) -> None:
        self._stamp, self._entries = stamp, entries

    def combine(self, input_cache: Any, ignore_mismatch: bool) -> bool:
        if input_cache._stamp != self._stamp and not ignore_mismatch:
            return False
        self._entries |= input_cache._entries
        return True

    def reset(self) -> bool:
        self._entries.clear()
        return True

    def serialize(self) -> Any:
        return self._trt.IHostMemory(b"\n".join([_TIMING_MAGIC + self._stamp, *sorted(self._entries)]))


class IBuilderConfig(Template):
    def _setup(self, logger: Any) -> None:
        self._logger = logger
        self._defaults()

    def _defaults(self) -> None:
        trt = self._trt
        self._flags = 1 << int(trt.BuilderFlag.TF32)
        self._level, self._max_aux_streams, self._avg_timing = 3, -1, 1
        self._verbosity = trt.ProfilingVerbosity.LAYER_NAMES_ONLY
        self._hardware = trt.HardwareCompatibilityLevel.NONE
        self._profiles: list[Any] = []
        self._monitor: Any = None
        self._timings: Any = None

    def reset(self) -> None:
        self._defaults()

    flags = kept("_flags", "SupportsInt")

    def set_flag(self, flag: Any) -> None:
        self._flags |= 1 << int(flag)

    def clear_flag(self, flag: Any) -> None:
        self._flags &= ~(1 << int(flag))

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        """Limits and tactic sources change nothing here."""
        if pool_size < 0:
            raise TypeError("set_memory_pool_limit(): incompatible function arguments.")

    @property
    def builder_optimization_level(self) -> int:
        return self._level

    @builder_optimization_level.setter
    def builder_optimization_level(self, value: SupportsInt) -> None:
        self._level = min(int(value), 5)

    max_aux_streams = kept("_max_aux_streams", "SupportsInt")

    avg_timing_iterations = kept("_avg_timing", "SupportsInt")

    profiling_verbosity = kept("_verbosity", "ProfilingVerbosity")

    hardware_compatibility_level = kept("_hardware", "HardwareCompatibilityLevel")

    progress_monitor = kept("_monitor", "IProgressMonitor")

    @property
    def num_optimization_profiles(self) -> int:
        return len(self._profiles)

    def add_optimization_profile(self, profile: Any) -> int:
        if not profile:
            text = "Error Code 3: API Usage Error (Parameter check failed, condition: profile->isValid().)"
            report(self._logger, "ERROR", f"IBuilderConfig::addOptimizationProfile: {text}")
            return -1
        self._profiles.append(profile)
        return len(self._profiles) - 1

    def set_tactic_sources(self, tactic_sources: int) -> bool:
        return True

    def set_preview_feature(self, feature: Any, enable: bool) -> None:
        """Preview features change nothing here."""

    def create_timing_cache(self, serialized_timing_cache: Any) -> Any:
        trt = self._trt
        stamp = f"{trt.__version__} {gpu.current().capability}".encode()
        first, *entries = bytes(serialized_timing_cache).split(b"\n")
        if first.startswith(_TIMING_MAGIC):
            return trt.ITimingCache._make(first.removeprefix(_TIMING_MAGIC), set(entries))
        if first:
            report(self._logger, "WARNING", "Failed to deserialize timing cache. Returning an empty timing cache.")
        return trt.ITimingCache._make(stamp, set())

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        trt = self._trt
        if cache._stamp != f"{trt.__version__} {gpu.current().capability}".encode() and not ignore_mismatch:
            report(self._logger, "ERROR", "The timing cache is from another device or version.")
            return False
        self._timings = cache
        return True
