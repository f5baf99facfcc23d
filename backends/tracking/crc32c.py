"""CRC-32C (Castagnoli), as TFRecord files have it. The standard library knows only the other polynomial."""

from __future__ import annotations

POLYNOMIAL = 0x82F63B78  # reflected
MASK = 0xA282EAD8  # TFRecord adds it after a rotation, so that a checksum of checksums is not weak


def _table() -> tuple[int, ...]:
    rows: list[int] = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


TABLE = _table()


def crc32c(data: bytes | memoryview) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | memoryview) -> int:
    """The checksum as it stands in a TFRecord."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + MASK) & 0xFFFFFFFF
