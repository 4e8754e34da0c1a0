"""What nbgrader does anew for each submission is done once: its templates and queries stay compiled, and its schema is known.

No gradebook of a test has to survive a power cut, so nothing waits for the disk either.
"""

from functools import cache, lru_cache
from typing import Any

import nbgrader.api
import pytest
from jinja2 import BytecodeCache
from nbconvert.exporters.templateexporter import TemplateExporter
from sqlalchemy.event import listen

from tests import unchanged


class _Compiled(BytecodeCache):
    """Jinja's templates, compiled by their name and content."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], bytes] = {}

    def load_bytecode(self, bucket: Any) -> None:
        if (bucket.key, bucket.checksum) in self.known:
            bucket.bytecode_from_string(self.known[bucket.key, bucket.checksum])

    def dump_bytecode(self, bucket: Any) -> None:
        self.known[bucket.key, bucket.checksum] = bucket.bytecode_to_string()


def install(patched: pytest.MonkeyPatch) -> None:
    """Until `patched` is undone."""
    create_environment, create_engine = TemplateExporter._create_environment, nbgrader.api.create_engine
    get_alembic_version, compiled = nbgrader.api.get_alembic_version, _Compiled()

    def environment(self: TemplateExporter) -> Any:
        made = create_environment(self)
        made.bytecode_cache = compiled
        return made

    def engine(*where: Any, **options: Any) -> Any:
        made = create_engine(*where, **options)
        listen(made, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
        return made

    def alembic_version() -> str:
        key = unchanged.key("the schema of nbgrader's gradebook")
        return unchanged.made(key, lambda: get_alembic_version().encode()).decode()

    patched.setattr(TemplateExporter, "_create_environment", environment)
    # Each gradebook has an engine of its own otherwise, and an engine keeps the queries that it compiled.
    patched.setattr(nbgrader.api, "create_engine", lru_cache(maxsize=8)(engine))
    patched.setattr(nbgrader.api, "get_alembic_version", cache(alembic_version))
