"""Verdicts that cannot be altered unnoticed: signed with the classroom's key, and computed again from the measurements.

The signature is Ed25519 (RFC 8032). A learner can check a verdict with the public key in it, and the private key never leaves
the classroom's folder.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_FILE = "signing-key.pem"
_KEY, _SIGNATURE = "public_key", "value"


def signing_key(folder: Path) -> Ed25519PrivateKey:
    """The classroom's key, created on first use and readable only by its owner.

    Raises:
        CourseError: the file is not such a key.
    """
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = folder / KEY_FILE
    made = Ed25519PrivateKey.generate().private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    mine = folder / f".{KEY_FILE}.{os.getpid()}"
    if not path.exists():  # of two processes that make one, the first one's is kept
        mine.touch(mode=0o600)
        mine.write_bytes(made)
        try:
            os.link(mine, path)
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    try:
        key = form.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise CourseError(f"{path} is not the classroom's signing key (Ed25519): restore it, or remove it and grade again")
    return key


def classroom_of(verdict: Path) -> Path | None:
    """The classroom that contains a verdict as ``CLASSROOM/reports/STUDENT/LAB.json``; None if it is elsewhere."""
    path = verdict.absolute()
    return path.parents[2] if len(path.parents) > 2 and path.parents[1].name == "reports" else None


def public_key(key: Ed25519PrivateKey) -> str:
    """The public key, 32 bytes in hexadecimal."""
    return key.public_key().public_bytes_raw().hex()


def signed(document: dict[str, Any], key: Ed25519PrivateKey) -> dict[str, object]:
    """The document with a signature over everything else in it."""
    return {**document, "signature": {_KEY: public_key(key), _SIGNATURE: key.sign(_canonical(document)).hex()}}


def check(document: dict[str, Any], expected: str | None = None) -> None:
    """Check that a document has not changed since it was signed.

    Args:
        expected: the classroom's public key. Without it, the check only proves that the holder of the document's own key signed it.

    Raises:
        CourseError: it was altered, signed with another key, or not signed.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        known = document["signature"]
        key, value = bytes.fromhex(known[_KEY]), bytes.fromhex(known[_SIGNATURE])
    except (KeyError, TypeError, ValueError):
        raise CourseError("the verdict carries no signature") from None
    if expected is not None and key.hex() != expected:
        raise CourseError("the verdict was signed with another key than this classroom's")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(value, _canonical(document))
    except (InvalidSignature, ValueError):
        raise CourseError("the verdict was altered after it was signed") from None


def _canonical(document: dict[str, Any]) -> bytes:
    """The same bytes for the same values: sorted keys, no spaces, ASCII. Python's text of a float reads back as the same value."""
    content = {name: value for name, value in document.items() if name != "signature"}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=True).encode()
