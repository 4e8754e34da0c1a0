"""The released Torch-TensorRT on this machine: the course's networks in blocks, engines and tables, and the door that opens it."""

import json
import pwd
import subprocess
import sys
import types

import pytest
import torch

from course_lib import models
from course_lib.engines.backends.torch_tensorrt import installation, without_gpu
from course_lib.engines.backends.torch_tensorrt.blocks import Blocks, module_blocks, read
from course_lib.engines.registry import availability
from course_lib.errors import BackendUnavailable, BuildError

CUMPROD = "aten.cumprod.default"


class Island(torch.nn.Module):
    """Convolutions, an operator without a converter, and convolutions again."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3), torch.nn.ReLU())
        self.last = torch.nn.Conv2d(8, 4, 3)

    def forward(self, x):
        return torch.relu(self.last(torch.cumprod(self.first(x), 1)))


def test_a_network_of_the_course_is_one_engine_that_answers_as_eager():
    image = {"min": (1, 1, 32, 32), "opt": (4, 1, 32, 32), "max": (8, 1, 32, 32)}
    found = module_blocks(models.classifier("small"), {"image": image})
    (block,) = found.blocks
    assert block.in_tensorrt and found.release == installation.RELEASE and not found.in_pytorch
    assert found.relative_error is not None and found.relative_error < 1e-5
    assert block.plan_bytes > 1e5 and len(block.operators) > len(block.layers.kernels) > 5
    assert block.layers.dtype_counts()["Float"] > 5
    assert "torch_tensorrt" not in sys.modules and torch.cuda.device_count() == 0, "the worker alone has the package"


def test_an_operator_without_a_converter_divides_a_module():
    found = module_blocks(Island(), {"x": (2, 3, 16, 16)}, min_block_size=1)
    assert [block.in_tensorrt for block in found.blocks] == [True, False, True]
    assert found.in_pytorch == (CUMPROD,) and found.engines == 2 and found.relative_error == 0 and not found.convertible
    assert module_blocks(torch.nn.ReLU(), {"input": (2, 8)}).convertible, "PyTorch runs a block of one operator"
    assert found.blocks[0].operators == ("aten.convolution.default", "aten.relu.default") * 2
    assert Blocks.from_json(found.to_json()) == found
    assert "2 engines; in PyTorch: aten.cumprod.default" in found._repr_html_()


def test_a_module_that_cannot_be_exported():
    class Branching(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(BuildError, match=r"torch\.export rejects the module"):
        module_blocks(Branching(), {"x": (2, 2)})


def test_the_backend_names_the_release():
    found = availability("torch_tensorrt")
    assert found.version == installation.RELEASE and "course layers" in found.no_build and found.no_run


# The door


@pytest.mark.parametrize("release", ["", "2.12.0", "2.14.0"])
def test_another_release_is_rejected_before_anything_is_replaced(release, monkeypatch):
    monkeypatch.setattr(without_gpu, "installed_release", lambda: release)
    with pytest.raises(BackendUnavailable, match=rf"needs torch-tensorrt-rtx 2.13.0 .* found {release or 'none'}: python -m"):
        without_gpu.load.__wrapped__()
    assert torch.cuda.device_count() == 0


def test_a_machine_without_a_wheel_does_without(monkeypatch, capsys):
    monkeypatch.setattr(installation.platform, "machine", lambda: "aarch64")
    assert installation.main() == 0 and "only on x86-64 Linux" in capsys.readouterr().out


def test_pip_without_a_network_is_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(installation, "FOLDER", tmp_path)
    monkeypatch.setattr(installation.subprocess, "run", lambda *_, **__: types.SimpleNamespace(returncode=1))
    assert installation.main() == 1
    assert "could not install torch-tensorrt-rtx==2.13.0" in capsys.readouterr().err


def test_a_graph_without_engines_is_one_block():
    exported = torch.export.export(Island().eval(), (torch.rand(1, 3, 16, 16),)).run_decompositions()
    (block,) = read(exported.module()).blocks
    assert not block.in_tensorrt and CUMPROD in block.operators


# In a process that has loaded the package

NETWORKS_IN_NUMPY = """
import json, logging, sys
import numpy as np, torch
from course_lib.engines.backends.torch_tensorrt import network_values, without_gpu
from course_lib.errors import CourseError

torch_tensorrt = without_gpu.load()
logging.disable(logging.WARNING)

class Wrapped(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
    def forward(self, x):
        return self.function(x)

cases = {
    "arithmetic": lambda x: torch.relu(x) * 2 - x.exp(),
    "softmax and products": lambda x: x.softmax(-1) @ x.transpose(-1, -2),
    "slices and reshapes": lambda x: x[:, 1:3].reshape(2, -1),
    "sorted": lambda x: x.sort(1).values[:, 2],
    "select and sum": lambda x: torch.where(x > 0, x, -x).sum((1, 2)),
    "concatenation": lambda x: torch.cat([x, x.mean(1, keepdim=True)], 1),
    "largest": lambda x: x.topk(3, dim=1)[0],
    "roll": lambda x: x.roll(1, 1),
    "unknown layer": lambda x: torch.nn.functional.layer_norm(x, (4,)),
}
found = {}
for name, function in cases.items():
    x = torch.randn(2, 5, 4)
    try:
        (values,) = network_values.converted(torch.export.export(Wrapped(function), (x,)), [x])
        want = function(x).numpy()
        found[name] = float(np.abs(values - want).max()) if values.shape == want.shape else str(values.shape)
    except CourseError as error:
        found[name] = str(error)
compiled = torch_tensorrt.compile(Wrapped(torch.relu), ir="dynamo", inputs=[x], min_block_size=1)
try:
    torch_tensorrt.save(compiled, "module.ep", arg_inputs=[x])
except CourseError as error:
    found["save"] = str(error)
print(json.dumps(found), file=sys.__stdout__)
"""


def test_a_converters_network_has_the_values_of_pytorch():
    done = subprocess.run([sys.executable, "-c", NETWORKS_IN_NUMPY], capture_output=True, text=True, timeout=120)
    found = json.loads(done.stdout.splitlines()[-1])
    assert "layer NORMALIZATION, which the course cannot compute" in found.pop("unknown layer")
    assert "save needs a GPU" in found.pop("save")
    assert {name: error for name, error in found.items() if not (isinstance(error, float) and error < 1e-5)} == {}


def test_a_user_without_a_name_can_import_it(monkeypatch):
    def nameless(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nameless)
    with without_gpu._named_user():
        assert pwd.getpwuid(1)[0] == "nobody"
    assert pwd.getpwuid is nameless
