"""The classes of the stand-in for the module `tensorrt`, as templates of which `tensorrt_module` makes those of a version."""
