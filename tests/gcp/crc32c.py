"""CRC-32C (Castagnoli), which Debian's Python has not: rows of a block side by side with numpy, then put together."""
import base64

import numpy

POLYNOMIAL = 0x82F63B78
ROW = 1024
BLOCK = 8 << 20


def _step(value):
    for _ in range(8):
        value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
    return value


TABLE = numpy.array([_step(value) for value in range(256)], dtype=numpy.uint32)


def _apply(matrix, value):
    out, number = 0, 0
    while value:
        if value & 1:
            out ^= matrix[number]
        value, number = value >> 1, number + 1
    return out


# POWERS[k]: what 2^k bytes of zeros make of each bit.
POWERS = [[int(TABLE[(1 << bit) & 255]) ^ ((1 << bit) >> 8) for bit in range(32)]]
for _ in range(40):
    POWERS.append([_apply(POWERS[-1], each) for each in POWERS[-1]])


def shift(crc, count):
    """The checksum after `count` bytes of zeros."""
    for number, matrix in enumerate(POWERS):
        if count >> number & 1:
            crc = _apply(matrix, crc)
    return crc


_SHIFT_ROW = [[shift(byte << 8 * place, ROW) for byte in range(256)] for place in range(4)]


def _of_block(data):
    """From zero: zeros in front change nothing, so rows are filled up there."""
    padded = bytes(-len(data) % ROW) + data
    rows = numpy.frombuffer(padded, dtype=numpy.uint8).reshape(-1, ROW)
    columns = numpy.ascontiguousarray(rows.T)
    state = numpy.zeros(len(rows), dtype=numpy.uint32)
    for column in columns:
        state = TABLE[(state ^ column) & 255] ^ (state >> 8)
    crc, (a, b, c, d) = 0, _SHIFT_ROW
    for each in state.tolist():
        crc = a[crc & 255] ^ b[crc >> 8 & 255] ^ c[crc >> 16 & 255] ^ d[crc >> 24] ^ each
    return crc


class Crc32c:
    def __init__(self):
        self.state = 0xFFFFFFFF

    def update(self, data):
        for start in range(0, len(data), BLOCK):
            piece = data[start:start + BLOCK]
            self.state = shift(self.state, len(piece)) ^ _of_block(piece)

    def base64(self):
        return base64.b64encode((self.state ^ 0xFFFFFFFF).to_bytes(4, "big")).decode()


def of_file(path):
    """As Google writes it: base64 of the big-endian number."""
    crc = Crc32c()
    with open(path, "rb") as file:
        while piece := file.read(BLOCK):
            crc.update(piece)
    return crc.base64()
