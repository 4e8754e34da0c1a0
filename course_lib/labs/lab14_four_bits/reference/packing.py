"""Two codes in a byte."""

import numpy as np


def pack(codes: np.ndarray) -> np.ndarray:
    """Codes from -8 to 7 of any shape, two in a byte, the first one in the low half: uint8 ``((n + 1) // 2,)``."""
    halves = np.asarray(codes, np.int8).ravel().view(np.uint8) & 15
    if halves.size % 2:
        halves = np.append(halves, np.uint8(0))
    return np.asarray(halves[0::2] | halves[1::2] << 4)


def unpack(packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The codes in bytes from `pack`, int8 of the given shape."""
    packed = np.asarray(packed, np.uint8)
    halves = np.stack([packed & 15, packed >> 4], axis=1).ravel()[: int(np.prod(shape))]
    return ((halves ^ 8).astype(np.int8) - 8).astype(np.int8).reshape(shape)
