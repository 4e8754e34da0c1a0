"""The base class of a backend. One class in one file contains everything that the course needs to know about it.

A class in a module of `course_lib.engines.backends` is found there.

Listing the backends imports every backend's module, also in a worker whose environment has only numpy. A backend's module must
therefore import its library, and slow packages, inside the methods that use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

from course_lib.engines.plan import Engine, ModelSource, Plan
from course_lib.engines.progress import Report
from course_lib.errors import BackendUnavailable, PlanError


@dataclass(frozen=True)
class Availability:
    """What one backend can do on this machine.

    Attributes:
        name: name of the backend.
        version: version of its library, "" if it is not installed.
        no_build, no_run: why it cannot build or run here, "" if it can.
        commands: each one alone installs what is missing.
        modules: whether it compiles PyTorch modules, as ``course layers MODULE.py`` shows.
    """

    name: str
    version: str
    no_build: str = ""
    no_run: str = ""
    commands: tuple[str, ...] = ()
    modules: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values: the attributes by name."""
        return asdict(self)

    def explained(self, reason: str) -> str:
        """A reason with the commands that remove it; what a command says after its # is part of the sentence."""
        commands = ", or ".join(self.commands).replace("  # ", " ")
        return "; run ".join(filter(None, (reason, commands)))


class Backend:
    """A compiler or a runtime for engines, or both. A subclass must define `name`.

    Attributes:
        name: its name in plans, commands and verdicts.
        distributions: the packages that contain its library. Its version is that of the first installed one.
        install: how to install it, such as "pip install toy-runtime".
        builder_rank, runner_rank: its place in the order in which `default_builder` and `default_runner` try the backends, the lowest
            first. None means that it is used only by name.
        builds_lowered_models: whether `compile` takes models that `course_lib.precision` lowered for ONNX Runtime.
        streams_weights: whether `load` takes a weight budget.
    """

    name: ClassVar[str]
    distributions: ClassVar[tuple[str, ...]] = ()
    install: ClassVar[str] = ""
    builder_rank: ClassVar[int | None] = None
    runner_rank: ClassVar[int | None] = None
    builds_lowered_models: ClassVar[bool] = True
    streams_weights: ClassVar[bool] = False

    def availability(self) -> Availability:
        """What this backend can do in this interpreter and on this machine. It must not import the backend's library."""
        found = self.version()
        return Availability(self.name, found) if found else self.absent("not installed", self.install)

    def compile(
        self, model: Path, recipe: Mapping[str, Any], operators: Mapping[str, str], report: Report | None = None
    ) -> Plan:
        """Build a plan in this process.

        Args:
            model: an ONNX file that exists.
            recipe: the JSON values of a `Recipe`, as `Recipe.wire` gives them.
            operators: operator type of each ONNX node by name, for the layer table; ``{}`` without the onnx package.
            report: called with the share done (0 to 1) and the name of the phase, if the compiler reports progress.

        Raises:
            BuildError: the model or the recipe is rejected.
            PrecisionError: the layers do not have the recipe's precision.
            BackendUnavailable: this backend does not build plans.
        """
        raise BackendUnavailable(f"the backend {self.name} does not build plans")

    def load(self, plan: Plan, *, weight_budget_bytes: int | None = None) -> Engine:
        """Load an engine in this process, from a plan that this backend built for this device.

        Args:
            weight_budget_bytes: number of bytes of weights that may stay on the device; always None without `streams_weights`.

        Raises:
            PlanError: the plan is damaged or made by another version, or this backend does not make plans.
            EngineError: the weights cannot be streamed.
        """
        raise PlanError(f"the backend {self.name} does not build plans, so the plan's description is wrong: build it again")

    def load_module(self, source: ModelSource) -> Engine:
        """An engine in this process that runs a PyTorch module.

        Raises:
            BackendUnavailable: the machine does not have what the source's variant needs, or this backend runs no modules.
        """
        raise BackendUnavailable(f"the backend {self.name} does not run PyTorch modules")

    def on_cpu(self) -> bool:
        """Whether its engines run on this machine's CPU, on which no lab requires a gain from FP16."""
        return False

    def wants_lowered_int8(self) -> bool:
        """Whether INT8 models must pass through `course_lib.precision.lower_for_onnxruntime` to be fast here."""
        return False

    def newest_opset(self, version: str) -> int | None:
        """The newest ONNX operator set that a version of the compiler reads; None if no limit affects the course."""
        return None

    def build_settings(self) -> dict[str, str]:
        """Settings that affect `compile` besides its arguments, the version and the GPU, such as environment variables."""
        return {}

    def version(self) -> str:
        """Version of the first of `distributions` that is installed, "" if none is."""
        for distribution in self.distributions:
            try:
                return version(distribution)
            except PackageNotFoundError:
                continue
        return ""

    def absent(self, reason: str, *commands: str) -> Availability:
        """The answer of a backend that is not installed, with the commands of which each one installs it."""
        return Availability(self.name, "", reason, reason, commands)
