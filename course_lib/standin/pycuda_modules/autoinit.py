"""As `pycuda.autoinit`: the import makes a context active in this thread."""

from __future__ import annotations

from course_lib.standin import cuda_driver

cuda_driver.init()
device = cuda_driver.Device(0)
context = device.retain_primary_context()
context.push()
