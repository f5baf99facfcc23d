"""CRC-32C (Castagnoli), the checksum of TFRecord files. The standard library has only CRC-32."""

from __future__ import annotations

POLYNOMIAL = 0x82F63B78  # reflected
MASK = (
    0xA282EAD8  # TFRecord rotates the checksum and adds this, so that the checksum of a checksum is not weak
)


def _table() -> tuple[int, ...]:
    rows: list[int] = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


TABLE = _table()


def crc32c(data: bytes | memoryview) -> int:
    """The CRC-32C of `data`."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | memoryview) -> int:
    """The checksum as a TFRecord stores it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + MASK) & 0xFFFFFFFF
